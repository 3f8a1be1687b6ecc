"""Our model and Hugging Face's `transformers` compute the same with the same weights.

Skipped without environments/interop.txt. Both ways: folders that we write are loaded there, folders
that they write are read here.
"""

import numpy as np
import pytest
import tensorflow as tf
import tiny
from optional import torch, transformers

from albert_tf.checkpoints import (
    formats,
    hugging_face,
    model_checkpoint,
)
from albert_tf.checkpoints import hugging_face_architectures as architectures
from albert_tf.model import albert_model, weight_names

TOLERANCE = 2e-5
BASE = {
    "hidden_size": 768,
    "embedding_size": 128,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}
BERT = {"cross_layer_sharing": "none", "embedding_size": 8, "hidden_act": "gelu_erf"}
CASES = {
    "tiny": {},
    "base": pytest.param(BASE, marks=pytest.mark.full),
    "groups": {"num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 2},
    "E=H": {"embedding_size": 8},
    "odd": {"hidden_size": 15, "num_attention_heads": 3, "embedding_size": 5},
    "relu": {"hidden_act": "relu", "num_hidden_layers": 1},
    "erf": {"hidden_act": "gelu_erf"},
    "bert": BERT,
}
for_each_case = pytest.mark.parametrize("changes", CASES.values(), ids=CASES.keys())


def load(kind, folder):
    """Their model, eager and in evaluation mode; every key must be used and given."""
    options = {"output_loading_info": True, "attn_implementation": "eager"}
    network, info = kind.from_pretrained(str(folder), **options)
    for wrong in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        assert not info.get(wrong), (wrong, info[wrong])
    return network.eval()


def fill(network):
    """Numbers for every weight; for a large one of a size at which it can still tell tokens."""
    weights = tiny.fill(network)
    if network.count_params() > 1e6:
        variables = weight_names.weights_by_name(network)
        for name in (name for name in weights if weights[name].ndim == 2):
            weights[name] *= np.float32(0.05)
            variables[name].assign(weights[name])
    return weights


def write(folder, changes):
    """One of our models, filled with numbers, and the folder that we write of it."""
    config = tiny.config(**changes)
    network = albert_model.AlbertForPretraining(config)
    weights = fill(network)
    hugging_face.write(
        model_checkpoint.ModelCheckpoint(source="made", config=config, weights=weights), str(folder)
    )
    return network


def inputs(batch):
    """The same batch under their names."""
    names = {
        "input_ids": "input_ids",
        "input_mask": "attention_mask",
        "segment_ids": "token_type_ids",
    }
    return {theirs: torch.tensor(batch[ours].numpy()).long() for ours, theirs in names.items()}


def at_positions(batch, array):
    """[B, S, X] -> [B, P, X], the predicted tokens."""
    return np.take_along_axis(array, batch["masked_lm_positions"].numpy()[:, :, None], 1)


def assert_close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=TOLERANCE)


@for_each_case
def test_the_outputs_of_pretraining_are_equal(tmp_path, changes):
    ours = write(tmp_path, changes)
    is_bert = ours.config.is_bert
    kind = transformers.BertForPreTraining if is_bert else transformers.AlbertForPreTraining
    theirs = load(kind, tmp_path)
    batch = tiny.batch()
    with torch.no_grad():
        expected = theirs(**inputs(batch))
    outputs = ours(batch)
    logits = at_positions(batch, expected.prediction_logits.numpy())
    assert_close(outputs["masked_lm_logits"], logits)
    sentence = expected.seq_relationship_logits if is_bert else expected.sop_logits
    assert_close(outputs["sentence_order_logits"], sentence)


def test_the_gradients_are_equal(tmp_path):
    ours = write(tmp_path, CASES["groups"])
    theirs = load(transformers.AlbertForPreTraining, tmp_path)
    batch = tiny.batch()
    # Theirs gives the padding's row no gradient from the input.
    batch["input_ids"] = tf.maximum(batch["input_ids"], 1)
    labels = torch.full(tuple(batch["input_ids"].shape), -100)
    # One prediction a place: at a place that is predicted twice, theirs has one label.
    places = np.array([[0, 1, 2, 3, 4]] * 3, np.int32)
    batch["masked_lm_positions"] = tf.constant(places)
    for row, column in zip(*np.nonzero(batch["masked_lm_weights"].numpy()), strict=True):
        labels[row, places[row, column]] = int(batch["masked_lm_ids"][row, column])
    sentence = torch.tensor(batch["next_sentence_labels"].numpy()[:, 0]).long()
    theirs(**inputs(batch), labels=labels, sentence_order_label=sentence).loss.backward()
    _, gradients = tiny.loss_and_gradients(ours, batch)
    expected = {name: p.grad for name, p in theirs.named_parameters()}
    names = architectures.map_names(ours.albert.config)
    assert len(gradients) == len(expected) == 80  # two groups of two blocks
    for name, gradient in gradients.items():
        actual = tf.convert_to_tensor(gradient).numpy()
        actual = actual.T if name.endswith("/kernel") else actual
        np.testing.assert_allclose(
            actual, expected[names[name]], rtol=1e-4, atol=TOLERANCE, err_msg=name
        )


KINDS = {
    "AlbertModel": {},
    "AlbertForPreTraining": {},
    "AlbertForMaskedLM": {},
    "AlbertForQuestionAnswering": {},
    "AlbertForMultipleChoice": {},
    "AlbertForSequenceClassification": {"num_labels": 5},
    "AlbertForTokenClassification": {"num_labels": 3},
}
KINDS |= {name.replace("Albert", "Bert"): options for name, options in KINDS.items()}
KINDS["BertForNextSentencePrediction"] = {}
SIZES = {
    "vocab_size": 11,
    "embedding_size": 6,
    "hidden_size": 8,
    "num_hidden_layers": 4,
    "num_hidden_groups": 2,
    "num_attention_heads": 2,
    "intermediate_size": 10,
    "max_position_embeddings": 9,
}


def saved_by_them(folder, kind, **options):
    """One of their models, every weight a random number, as they save it."""
    torch.manual_seed(0)
    make_config = transformers.AlbertConfig if "Albert" in kind else transformers.BertConfig
    theirs = getattr(transformers, kind)(make_config(**SIZES, **options))
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.4)
    theirs.save_pretrained(folder)
    return theirs


@pytest.mark.parametrize("kind", KINDS)
def test_their_folders_go_through_every_format_to_the_bit(tmp_path, capsys, kind):
    theirs = saved_by_them(tmp_path / "hugging_face", kind, **KINDS[kind])
    source = "hugging_face"
    through = ["google", "albert_tf"] if "Albert" in kind else []
    for target in ("albert_tf", *through, "hugging_face", "hugging_face"):
        path = tmp_path / f"{source}_{target}"
        formats.convert(str(tmp_path / source), str(path), to_format=target)
        assert ", missing 0, unexpected 0, mismatched 0\n" in capsys.readouterr().err
        source = path.name
    back = load(getattr(transformers, kind), path)
    assert back.config.architectures == [kind]
    for name, value in KINDS[kind].items():
        assert getattr(back, name) == value
    expected, actual = theirs.state_dict(), back.state_dict()
    assert expected.keys() == actual.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensor, actual[name]), name
