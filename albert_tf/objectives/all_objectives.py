"""The table of what can be pre-trained: a new objective is a module and a line here."""

from albert_tf.objectives import masked_lm, phonemes, replaced_tokens
from albert_tf.objectives.objective import Objective
from albert_tf.train_config import REPLACED, PretrainConfig

# By the `sentence_task` of a config and of records.
OBJECTIVES = {
    "sop": masked_lm.make_objective("sentence_order"),
    "nsp": masked_lm.make_objective("next_sentence"),
    "none": masked_lm.make_objective(None),
    "phonemes": phonemes.PHONEMES,
}
# By the `token_task` of a config: what makes another of an objective of masked tokens.
_CHANGES = {REPLACED: replaced_tokens.make_objective}


def choose(config: PretrainConfig) -> Objective:
    """Returns what a run learns."""
    objective = OBJECTIVES[config.sentence_task]
    change = _CHANGES.get(config.token_task)
    return change(config, objective) if change else objective
