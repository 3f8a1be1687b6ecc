"""The table of pre-training objectives: a new one is a module and a line here."""

from albert_tf.objectives import masked_lm, phonemes
from albert_tf.objectives.objective import Objective

# Keyed by the `sentence_task` of a config and of records.
OBJECTIVES: dict[str, Objective] = {
    "sop": masked_lm.make_objective("sentence_order"),
    "nsp": masked_lm.make_objective("next_sentence"),
    "none": masked_lm.make_objective(None),
    "phonemes": phonemes.PHONEMES,
}
