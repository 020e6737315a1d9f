"""What the README says of each result: a few words and the figures that matter, filled in from `results/NAME.json`.

`f` is the result's `figures`; everything else it holds stays in the file. A result without a line here is an oversight, and
`python -m bench.readme` says so.
"""

from __future__ import annotations

SPEED = "{f[regard][best tokens/s]:,} tokens/s"
BY = "regard is faster by"
TUNED = ", our batches and allocator"
TRAIN = (
    f"{SPEED}; {{f[marian][{BY}]}}× MarianMT as it comes, {{f[marian{TUNED}][{BY}]}}× with our batches and allocator; "
    f"{{f[x-transformers{TUNED}][{BY}]}}× x-transformers, {{f[torch.nn.Transformer{TUNED}][{BY}]}}× torch.nn.Transformer; "
    f"{{f[regard][peak MB]:,}} MB against {{f[marian{TUNED}][peak MB]:,}}"
)
DECODE = "; ".join(
    f"{said} {{f[{case} regard][best tokens/s]:,}} tokens/s, {{f[{case} transformers][{BY}]}}× transformers, "
    f"{{f[{case} ctranslate2 int8][{BY}]}}× CTranslate2 int8"
    for case, said in (("1x1", "one sentence, greedy"), ("32x1", "32, greedy"), ("32x5", "32, beam 5"))
)
SCAN = "; ".join(
    f"{said} " + ", ".join(f"{{f[{split}][{name}]}}" for split in ("simple", "length", "add-jump"))
    for said, name in (
        ("sinusoids", "Transformer, sinusoids"),
        ("distances", "Transformer, distances"),
        ("the published LSTM", "LSTM, published"),
    )
)
RUN = "{f[minutes]} minutes, {f[parameters]:,} parameters"

HEADLINES: dict[str, dict[str, tuple[str, str]]] = {
    "How good": {
        "dates": ("Dates in 57 locales to ISO 8601, days never seen (the demo)", "{f[exact]} % right; " + RUN),
        "translate-29000": (
            "Multi30k En→De, raw text, nothing set, test 2016", "sacreBLEU {f[bleu]} (13a, cased), chrF {f[chrf]}; " + RUN),
        "translate-5000": ("Its first 5,000 pairs, nothing set", "sacreBLEU {f[bleu]}, chrF {f[chrf]}; " + RUN),
        "translate-5000000": (
            "Five million made pairs, nothing set: how the run begins",
            "{f[minutes]} minutes of {f[forecast]}; loss {f[loss]}, every 50 steps"),
        "time-to-quality": (
            "Multi30k En→De on the exact input of the published 41.02 BLEU, our fast recipe",
            "BLEU {f[BLEU on test 2016, each seed]} after {f[minutes, each seed]} minutes"),
        "multi30k-published": (
            "The same by the published recipe, stopped by validation loss as it says",
            "BLEU {f[BLEU on test 2016, each seed]} after {f[steps, each seed]} updates"),
        "pronounce": (
            "CMUdict, letters to phones without stress, words never seen",
            "{f[word_error, beam 5]} % of words wrong (published 30.2 %); {f[minutes]} minutes on one busy core, "
            "{f[parameters]:,} parameters"),
        "scan": (
            "SCAN, per cent of commands right: simple, length, add-jump", SCAN),
        "gpt": (
            "Letters of tinyshakespeare, whole validation split: nanoGPT's configuration for a CPU",
            "loss {f[loss]:.3f}; " + RUN),
        "gpt-nano": (
            "nanoGPT's own model and loop there, re-implemented", "{f[loss on the whole split, mean]:.3f}, three seeds"),
        "shakespeare": ("Our recipe there, as many parameters and tokens", "loss {f[loss]:.3f}; " + RUN),
        "memory": (
            "Transformer-XL and Compressive beside a plain decoder, three seeds",
            "loss {f[plain][loss]:.3f} plain, {f[xl, memory 128][loss]:.3f} with memory, "
            "{f[compressive, memory 128][loss]:.3f} with compressed memory"),
        "vit-mnist": ("ViT on MNIST, the 10,000 test pictures", "{f[accuracy]} %; " + RUN),
        "vit-cifar": ("ViT on 20,000 pictures of CIFAR-10, 5,000 test pictures", "{f[accuracy]} %; " + RUN),
        "reformer": (
            "Reformer copies 31 symbols",
            "{f[right, 1 rounds]} % right with one round of hashing, {f[right, 8 rounds]} % with 8"),
        "pretrain-protein": (
            "Pre-training, then secondary structure of proteins from 1,000 labelled chains",
            "Q8 {f[1000 labelled chains][Q8][tuned]} against {f[1000 labelled chains][Q8][scratch]} from scratch"),
        "t5-two-tasks": (
            "One T5 for two tasks against one for each",
            "summaries chrF {f[summarize, chrf, one model for both]} / {f[summarize, chrf, a model for each]}, "
            "phones WER {f[say, wer, one model for both]} / {f[say, wer, a model for each]}"),
        "smollm2": (
            "SmolLM2 135M from a GGUF file", "perplexity {f[perplexity]:.4f} (transformers {f[perplexity, transformers]:.4f})"),
        "quality": (
            "All fast paths against their plain twins, three seeds",
            "difference {f[difference of the means]} BLEU, spread of the seeds {f[standard deviation over seeds]}; "
            "{f[minutes of all seeds, fast]} against {f[minutes of all seeds, plain]} minutes"),
    },
    "How fast": {
        "bench-train-tiny": ("Training Transformer-Tiny", TRAIN),
        "bench-train-base": ("Training Transformer-Base", TRAIN),
        "bench-processes": (
            "Two cores against one thread",
            "rows on threads (as it comes) {f[rows on 2 threads (as it comes), times one thread]}×, "
            "torchrun {f[torchrun, 2 processes, times one thread]}×"),
        "bench-threads": (
            "Training beside a busy program",
            "{f[beside a busy program, soon asleep (ours)]:,} tokens/s; "
            "{f[beside a busy program, as libgomp has it]:,} if threads waited as libgomp has it"),
        "bench-lm-train": (
            "Training nanoGPT's CPU configuration",
            f"{SPEED}; {{f[nanoGPT][{BY}]}}× nanoGPT, {{f[transformers][{BY}]}}× transformers"),
        "bench-decode-tiny": ("Translating, Tiny", DECODE),
        "bench-decode-base": ("Translating, Base", DECODE),
        "bench-lm-write": (
            "A decoder of 124 M parameters writes one text",
            f"{SPEED}; {{f[transformers][{BY}]}}× transformers, {{f[ctranslate2 float32][{BY}]}}× CTranslate2 float32"),
    },
    "How it grows": {
        "bench-attention": (
            "Attention over 16,384 tokens, forward and backward",
            "fused {f[fused 16384][ms]:,} ms, our tiles {f[flash 16384][ms]:,} ms, window of 512 {f[window 16384][ms]:,} ms "
            "([figure](results/bench-attention.html))"),
        "complexity": (
            "Growth with the length, last three doublings", "time n^ {f[time ∝ n^]}; memory n^ {f[memory ∝ n^]}"),
        "mixers": (
            "Every mixer on the same two tasks", "context 1,024: loss {f[decode full][loss]:.3f} full, "
            "{f[decode local][loss]:.3f} local, {f[decode performer][loss]:.3f} performer, {f[decode lsh][loss]:.3f} lsh"),
        "document": (
            "A document of 16,384 tokens through a Performer",
            "{f[encode][peak MB]} MB to read, {f[train][peak MB]:,} MB to train"),
        "large": (
            "Ten million pairs prepared and trained on",
            "at most {f[peak MB preparing]:,} MB of memory of its own, {f[minutes of preparation]} minutes of preparation"),
    },
}  # fmt: skip
