"""The one exception a user may see."""


class UserError(ValueError):
    """A mistake of the user's: one sentence that names the thing and the remedy.

    Programs print it as a single line and exit with status 1 (see `albert_tf.program`). Every other
    exception is our own mistake and keeps its traceback.
    """
