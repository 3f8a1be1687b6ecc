"""Why a request is refused: TensorFlow Serving's codes, and their HTTP statuses."""

STATUS = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "UNIMPLEMENTED": 405,
    "TIMED_OUT": 408,
    "TOO_LARGE": 413,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


class Refusal(Exception):  # noqa: N818  (an answer, not an error)
    """A refused request.

    Attributes:
        code: a key of `STATUS`.
        status: the HTTP status.
        headers: the headers of the reply.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.status = code, STATUS[code]
        self.headers = {"Retry-After": "1"} if self.status in (429, 503) else {}


def invalid(message: str) -> Refusal:
    return Refusal("INVALID_ARGUMENT", message)


def not_found(message: str) -> Refusal:
    return Refusal("NOT_FOUND", message)
