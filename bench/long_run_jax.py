"""Trains with steps of `bin/export --format=step`, on rows of tokens that it masks anew each time.

    python train.py PLAN.json OUTPUT_DIR

Needs jax and flatbuffers, and no TensorFlow; `bench/long_run.py` prepares it and collects weights.
Beside the plan lie `tokens.npz` (rows, [N, S], -1 pads; `starts`: pieces beginning a word),
`first.npz` (weights) and the folders of the steps. A plan has `held_out` ({S: rows}) and `stages`:

    name, from      of the stage; of that whose weights it goes on from (default: the one before)
    steps           to take; where the run diverges it goes back, and takes the next one
    rows            to read
    updates, masks  how many; share of the tokens that are masked at the beginning and at the end
    keeps           how often it measures the held-out rows and keeps the weights, evenly
"""

import json
import pathlib
import sys
import time
from concurrent import futures

import jax
import numpy as np
from jax import export, lax, random
from jax import numpy as jnp

jax.config.update("jax_enable_x64", True)  # the number of the step has 64 bits
CLS, SEP, MASK, SPECIAL = 2, 3, 4, 5
CHUNK = 50  # updates of one call
PLATFORM = jax.default_backend().replace("gpu", "cuda")


def mask_words(ids, starts, key, share, most):
    """[B, S] rows -> features; masks whole words as `albert_tf/records/online_masking.py` does.

    Two things are simpler: it ends at the first word that does not fit, and what begins a word is
    looked up by piece (which is wrong for 0.2 % of the tokens).
    """
    is_token, is_end = ids >= 0, ids == SEP
    ids = jnp.maximum(ids, 0).astype(jnp.int32)
    is_text = is_token & (ids != CLS) & ~is_end
    words = jnp.cumsum(starts[ids] | ~is_text, axis=1) - 1
    keys = random.split(key, 3)
    order = random.uniform(keys[0], ids.shape, jnp.float32)
    order = jnp.where(is_text, jnp.take_along_axis(order, words, 1), 2.0)
    taken = (order[:, None, :] <= order[:, :, None]).sum(2)  # tokens up to the end of its word
    number = jnp.clip(jnp.round(is_token.sum(1) * share), 1, most)
    chosen = is_text & (taken <= number[:, None])
    draws = random.uniform(keys[1], ids.shape, jnp.float32)
    others = random.randint(keys[2], ids.shape, SPECIAL, starts.shape[0], jnp.int32)
    replaced = jnp.where(draws < 0.8, MASK, jnp.where(draws < 0.9, ids, others))
    places = jnp.argsort(~chosen, axis=1, stable=True)[:, :most].astype(jnp.int32)
    is_used = jnp.take_along_axis(chosen, places, 1)
    segments = jnp.minimum(jnp.cumsum(is_end, 1) - is_end, 1)
    return {
        "input_ids": jnp.where(chosen, replaced, ids),
        "input_mask": is_token.astype(jnp.int32),
        "segment_ids": jnp.where(is_token, segments, 0).astype(jnp.int32),
        "masked_lm_positions": jnp.where(is_used, places, 0),
        "masked_lm_ids": jnp.where(is_used, jnp.take_along_axis(ids, places, 1), 0),
        "masked_lm_weights": is_used.astype(jnp.float32),
        "next_sentence_labels": jnp.zeros([ids.shape[0], 1], jnp.int32),
    }


class Step:
    """A step, as a function of many updates."""

    def __init__(self, folder, starts):
        self.about = json.loads((folder / "step.json").read_text())
        self.exported = export.deserialize((folder / f"step.{PLATFORM}.jaxexport").read_bytes())
        self.inputs, self.starts = self.about["inputs"], starts
        config = self.about["config"]
        self.size, self.length = self.about["per_replica_batch"], config["max_seq_length"]
        self.most, self.rate = config["max_predictions_per_seq"], config["learning_rate"]
        self.kind = self.length, config["albert"]["num_hidden_layers"]

    def make_state(self, arrays):
        """Weights, moments and the number of the step, which is 0."""
        names = [x for x in self.inputs if x["name"].startswith(("bert/", "cls/", "iterations"))]
        first = {x["name"]: np.zeros(x["shape"], x["dtype"]) for x in names}
        first |= {k: arrays[k] for k in first if k in arrays and k != "iterations"}
        return {x["name"]: jnp.asarray(first[x["name"]], x["dtype"]) for x in names}

    def compile_run(self, num_rows):
        state, rows = self._describe(num_rows)
        order, begin = (jax.ShapeDtypeStruct(shape, jnp.int64) for shape in ([num_rows], []))
        share = jax.ShapeDtypeStruct([], jnp.float64)
        key = jax.eval_shape(lambda: random.key(0))
        run = jax.jit(self._run, donate_argnums=0)
        return run.lower(state, rows, order, begin, key, share).compile()

    def compile_measure(self, num_rows):
        return jax.jit(self._measure).lower(*self._describe(num_rows)).compile()

    def _describe(self, num_rows):
        rows = jax.ShapeDtypeStruct((num_rows, self.length), jnp.int16)
        return jax.eval_shape(lambda: self.make_state({})), rows

    def _apply(self, state, rows, key, share):
        values = {**mask_words(rows, self.starts, key, share, self.most), **state}
        outputs = self.exported.call(*(values[x["name"]] for x in self.inputs))
        new = {x["name"]: outputs[x["output"]] for x in self.inputs if x["output"] is not None}
        return {**state, **new}, dict(zip(self.about["tells"], outputs))  # noqa: B905

    def _run(self, state, rows, order, begin, key, share):
        def update(state, number):
            places = lax.dynamic_slice(order, [begin + number * self.size], [self.size])
            return self._apply(state, rows[places], random.fold_in(key, number), share)

        return lax.scan(update, state, jnp.arange(CHUNK))

    def _measure(self, state, rows):
        def add(_, number):
            part = lax.dynamic_slice(rows, [number * self.size, 0], [self.size, self.length])
            return None, self._apply(state, part, random.fold_in(random.key(0), number), 0.15)[1]

        return lax.scan(add, None, jnp.arange(rows.shape[0] // self.size))[1]


class Output:
    """A log, and weights in float16, those of three times in a file."""

    def __init__(self, folder):
        self.folder, self.kept, self.began = folder, [], time.time()
        folder.mkdir(parents=True, exist_ok=True)

    def log(self, **values):
        line = json.dumps({"seconds": round(time.time() - self.began, 1), **values})
        print(line, flush=True)
        with open(self.folder / "log.jsonl", "a") as file:
            file.write(line + "\n")

    def keep(self, name, state):
        weights = {
            k: x for k, x in state.items() if k[:4] in ("bert", "cls/") and "/adam_" not in k
        }
        self.kept.append({f"{name}|{k}": np.asarray(x, np.float16) for k, x in weights.items()})
        number = (len(self.kept) - 1) // 3
        together = {k: x for one in self.kept[3 * number :] for k, x in one.items()}
        np.savez(self.folder / f"weights-{number}.npz", **together)


def average(tells):
    """Returns loss and accuracy of updates."""
    sums = {k: float(np.asarray(x, np.float64).sum()) for k, x in tells.items()}
    return [round(sums[f"masked_lm_{x}"] / sums["masked_lm"], 4) for x in ("loss", "correct")]


def run_stage(stage, state, rows, held_out, steps, output):
    """Trains, and returns the new state; `steps` are (step, run, measure), being compiled."""
    name, updates, keeps = stage["name"], stage["updates"], stage.get("keeps", 1)
    step, run, measure = steps.pop(0)
    state = step.make_state(state)
    saved, best = [(jax.tree.map(jnp.copy, state), 0)], 99.0
    done, place, epoch = 0, len(rows), 0
    while done < updates:
        if place + CHUNK * step.size > len(rows):
            place, epoch = 0, epoch + 1
            order = random.permutation(random.key(epoch), len(rows)).astype(jnp.int64)
        share = np.interp(done / updates, [0, 1], stage["masks"])
        key = random.fold_in(random.key(0), done)
        arguments = rows, order, jnp.asarray(place), key, jnp.asarray(share)
        state, tells = run.result()(state, *arguments)
        tells = jax.device_get(tells)
        (loss, accuracy), place, done = average(tells), place + CHUNK * step.size, done + CHUNK
        if not np.isfinite(loss) or loss > best + 0.6:
            (state, back), *saved = saved
            output.log(stage=name, diverged=done, loss=loss, back=back, rate=step.rate)
            if not steps:
                raise SystemExit(f"{name} diverges at its lowest rate.")
            step, run, measure = steps.pop(0)
            state, done, best = step.make_state(jax.device_get(state)), back, 99.0
            saved = [(jax.tree.map(jnp.copy, state), done)]
            continue
        if done > 500:
            best = min(best, loss)
        if done % 200 == 0:
            saved = [*saved[-4:], (jax.tree.map(jnp.copy, state), done)]
        if done % 500 == 0:
            last = {k: float(tells[k][-1]) for k in ("learning_rate", "gradient_norm")}
            output.log(stage=name, updates=done, epoch=epoch, loss=loss, accuracy=accuracy, **last)
        if done * keeps // updates > (done - CHUNK) * keeps // updates:
            loss, accuracy = average(jax.device_get(measure.result()(state, held_out)))
            output.log(stage=name, updates=done, held_out_loss=loss, held_out_accuracy=accuracy)
            output.keep(f"{name}-{done}", state)
    return state


def main():
    path, output = pathlib.Path(sys.argv[1]), Output(pathlib.Path(sys.argv[2]))
    plan, folder = json.loads(path.read_text()), path.parent
    tokens, state = (dict(np.load(folder / x)) for x in ("tokens.npz", "first.npz"))
    starts, compiled, prepared = jnp.asarray(tokens["starts"]), {}, []
    states: dict[str, dict] = {}
    output.log(device=str(jax.devices()[0]), jax=jax.__version__)
    pool = futures.ThreadPoolExecutor(6)
    for stage in plan["stages"]:  # all at once: a step of many layers compiles for a minute
        rows, steps = np.concatenate([tokens[x] for x in stage["rows"]]), []
        for step in (Step(folder / x, starts) for x in stage["steps"]):
            held_out = tokens[plan["held_out"][str(step.length)]]
            if step.kind not in compiled:
                compiled[step.kind] = pool.submit(step.compile_measure, len(held_out))
            steps.append((step, pool.submit(step.compile_run, len(rows)), compiled[step.kind]))
        prepared.append((rows, held_out, steps))
    for stage, (rows, held_out, steps) in zip(plan["stages"], prepared):  # noqa: B905
        state = states.get(stage.get("from"), state)
        state = run_stage(stage, state, jnp.asarray(rows), jnp.asarray(held_out), steps, output)
        states[stage["name"]] = state = jax.device_get(state)
    output.log(ended=True)


main()
