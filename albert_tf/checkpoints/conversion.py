"""Converting a checkpoint from any format that is read into any that is written."""

from collections.abc import Callable

import tensorflow as tf

from albert_tf import files
from albert_tf.checkpoints import formats, matching, model_checkpoint
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.errors import UserError


def convert(
    source: str,
    target: str,
    *,
    from_format: str | None = None,
    to_format: str = "albert_tf",
    allow_partial: str | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Reads `source` strictly and writes the folder `target`: whole, or not at all.

    Args:
        source: any path that `formats.read` takes.
        target: a folder that does not exist yet.
        from_format: a key of `formats.FORMATS`; by default it is found out.
        to_format: one of those that are written.
        allow_partial: a regular expression; weights whose whole name it matches may be missing,
            or are left out.
        say: takes each line of the report.

    Raises:
        UserError: the source is not read, or is not what its config says; the target exists, or
            its format has no place for some weight.
    """
    write = formats.writable(to_format)
    matching.pattern(allow_partial)  # before minutes of reading
    if tf.io.gfile.exists(target):
        raise UserError(f"--to: {target} exists. Remove it, or name another folder.")
    with files.cleaning_up():
        what = formats.read(source, from_format)
        for line in model_checkpoint.report(what):
            say(line)
        wanted = model_checkpoint.wanted(what)
        names = matching.check(
            model_checkpoint.shapes(what), wanted, source, allow_partial=allow_partial, say=say
        )
        what = _without_lacks(
            model_checkpoint.keep(what, names.loaded), to_format, allow_partial, say
        )
        for line in formats.get(to_format).loses(what):
            say(line)
        with files.replacing_folder(target) as temporary:
            write(what, temporary)
    say(f"written to {target}: {len(what.weights)} weights ({to_format})")


def _without_lacks(
    what: ModelCheckpoint, to_format: str, allow_partial: str | None, say: Callable[[str], None]
) -> ModelCheckpoint:
    """Leaves out what the format has no place for, and says so."""
    lacks = formats.get(to_format).lacks(what)
    for name in lacks:
        say(f"no place in {to_format}: {name}")
    allowed = matching.pattern(allow_partial)
    if foreign := [name for name in lacks if not allowed.fullmatch(name)]:
        raise UserError(
            f"{to_format} has no place for {len(foreign)} weights ({foreign[0]}). "
            "Leave them out with --allow_partial=REGEX."
        )
    return model_checkpoint.keep(what, [name for name in what.weights if name not in lacks])
