"""The command of every study whose result is recorded.

A command can be typed as it stands where `../shared/data` holds the data. Sizes are small: a study takes 10 to 20 minutes of
one core, those of ablation and transfer an hour and two. What counts as no difference (`--delta`) is written here, before
any run.
"""

from __future__ import annotations

DATA = "../shared/data"
RECIPE = "bench/studies/sinusoidal.yaml"
MULTI30K = " ".join(
    f"--{option} {DATA}/multi30k/{part}.{language}.gz"
    for option, part in (("data", "train"), ("valid", "val"), ("test", "test_2016_flickr"))
    for language in ("en", "de")
)
PACKAGES = "runs/packages"

COMMANDS = {
    "length": "regard study length copy -n 12 --set train.batch_tokens=512 --set train.validate_every=300",
    "ablate": f"regard study ablate {RECIPE} {MULTI30K} --delta 1",
    "calibration": f"regard study calibration {RECIPE} {MULTI30K}",
    "pre-post": f"regard study compare {RECIPE} {MULTI30K} --vary model.norm=post,pre --match parameters --delta 1",
    "rotary": f"regard study compare {RECIPE} bench/studies/rotary.yaml {MULTI30K} --delta 1",
    "muon": f"regard study compare {RECIPE} {MULTI30K} --vary train.optimizer=adamw,muon --tune rate --delta 1",
    "transfer": f"python -m bench.packages {DATA}/debian_descriptions {PACKAGES} && regard study transfer "
    f"--task translation={RECIPE},{DATA}/multi30k/train.en.gz,{DATA}/multi30k/train.de.gz "
    f"--task summarization=bench/studies/synopses.yaml,{PACKAGES}/synopses.train.tsv "
    f"--task classification=bench/studies/kinds.yaml,{PACKAGES}/kinds.train.tsv "
    f"--task lm=bench/studies/characters.yaml,{DATA}/tinyshakespeare/input.txt --task algorithm=bench/studies/reverse.yaml",
    "recurrence": "regard study complexity --mixers rnn,gru,lstm --threads 1 --minutes 4",
    "gradients": "regard study gradients",
    "properties": "regard study properties",
    "scaling": "python -m bench.library library && regard study scaling gpt --data library/train.txt --valid library/valid.txt "
    "--widths 16,32,48,64 --steps 100,200,400,800 --held-out 96,1700 --flops 1.6e10 --flops 3.2e10 --flops 6.4e10 "
    "--set model.depth=2 --set model.width=16 --set model.hidden=64 --set model.mup_base=16 --set train.batch_tokens=512 "
    "--set 'train.schedule={kind: cosine, lr: 8.0e-3, warmup: 20, min_lr_ratio: 0.1}' --set train.validate_every=10000",
    "rates": f"regard study rates gpt --data {DATA}/tinyshakespeare/input.txt --set model.depth=2 --set model.width=64 "
    "--set model.hidden=256 --set train.batch_tokens=512 --set train.steps=150 --set train.validate_every=150 "
    "--set 'train.schedule={kind: constant, lr: 4.0e-3, warmup: 20}'",
}
"""`python -m bench.study NAME` runs one; its result is `results/study-NAME.json`."""

_STEPS = {
    "train.steps": 2,
    "train.validate_every": 2,
    "train.batch_tokens": 128,
    "train.schedule.warmup": 1,
    "train.log_every": 1,
}
_AT_END = ["--set", "train.validate_every=10000"]
_SIZES = {"model.width": 16, "model.depth": 1, "model.heads": 2, "model.hidden": 16}
_FEW = ["--processes", "0", *(word for key, value in _STEPS.items() for word in ("--set", f"{key}={value}"))]
_SMALL = [*_FEW, *(word for key, value in _SIZES.items() for word in ("--set", f"{key}={value}"))]
_TRANSLATE = [*_SMALL, "--seeds", "2", "--set", "data.tokenizer.vocab=300", "--set", "decode.max_length=4"]
SMOKE: dict[str, list[str]] = {
    "length": [*_SMALL, "--seeds", "2", "-n", "3", "--only", "sinusoidal", "--only", "rotary"],
    "ablate": [*_TRANSLATE, "--only", "no smoothing"],
    "calibration": _TRANSLATE,
    "pre-post": _TRANSLATE,
    "rotary": _TRANSLATE,
    "muon": _TRANSLATE,
    "transfer": [*_SMALL, "--seeds", "2", "--only", "RMSNorm"],
    "recurrence": ["--mixers", "lstm", "--lengths", "16,32,64,128", "--widths", "16", "--minutes", "3"],
    "gradients": ["-n", "16", "--width", "8", "--seeds", "2"],
    "properties": ["--seeds", "2"],
    "scaling": [*_FEW, "--widths", "16,24,32", "--steps", "2,4,6", "--held-out", "48,60", "--flops", "2e8", *_AT_END],
    "rates": [*_FEW, "--widths", "8,16", "--count", "3", "--set", "model.heads=2"],
}
"""What makes each of them so small that it takes seconds: given after what the command says, where the last word counts."""
REPLACED = ("--flops", "--mixers")
"""Options that may be repeated, and that a smoke run gives anew."""
