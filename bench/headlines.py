"""What is said about each result: a title and the figures that matter, filled in from `results/NAME.json`.

`f` is the result's `figures`. Every result has a line here, in the order of the results page; `README` names the few that
the README shows.
"""

from __future__ import annotations

import string
from typing import Any

SPEED = "{f[regard][best tokens/s]:,} tokens/s"
BY = "regard is faster by"
TUNED = ", our batches and allocator"
TRAIN = (
    f"{SPEED}: {{f[marian{TUNED}][{BY}]}}× MarianMT in transformers with the same batches and allocator "
    f"({{f[marian][{BY}]}}× with its own), {{f[x-transformers{TUNED}][{BY}]}}× x-transformers, "
    f"{{f[torch.nn.Transformer{TUNED}][{BY}]}}× torch.nn.Transformer; "
    f"{{f[regard][peak MB]:,}} MB against {{f[marian{TUNED}][peak MB]:,}} MB"
)
DECODE = "; ".join(
    f"{words}: {{f[{case} regard native int8][best tokens/s]:,}} tokens/s in int8, "
    f"{{f[{case} ctranslate2 int8][{BY}]}}× CTranslate2 int8 (float32: {{f[{case} ctranslate2 float32][{BY}]}}× CTranslate2, "
    f"{{f[{case} regard][{BY}]}}× our torch path, {{f[{case} transformers][{BY}]}}× transformers)"
    for case, words in (("1x1", "one sentence, greedy"), ("32x1", "32 sentences, greedy"), ("32x5", "32, beam 5"))
)
SHELL = (
    "one line, int8: {f[one line, regard int8][best seconds]} s, `import torch` alone "
    "{f[one line, import torch][best seconds]} s; 1,000 lines, int8: {f[1,000 lines, regard int8][best seconds]} s, "
    f"{{f[1,000 lines, ctranslate2 int8][{BY}]}}× CTranslate2's Python client; "
    "{f[1,000 lines, regard int8][peak MB]} MB against {f[1,000 lines, ctranslate2 int8][peak MB]} MB"
)
SCAN = "; ".join(
    f"{words} {{f[simple][{name}]}}, {{f[length][{name}]}}, {{f[add-jump][{name}]}}"
    for words, name in (
        ("sinusoidal positions", "Transformer, sinusoids"),
        ("relative positions", "Transformer, distances"),
        ("published LSTM", "LSTM, published"),
    )
)
FAITHFUL = ", ".join(
    f"{words} {{f[explanations][{name}][comprehensiveness]}}"
    for words, name in (
        ("integrated gradients", "integrated gradients"),
        ("attention rollout", "attention rollout"),
        ("occlusion", "occlusion"),
        ("attention", "attention, last layer"),
        ("gradient × input", "gradient × input"),
        ("random", "random"),
    )
)
PIANO = (
    ", ".join(
        f"{words} {{f[{name}][nats per frame]}} (published: {{f[{name}][published]}})"
        for words, name in (("RNN", "rnn"), ("GRU", "gru"), ("LSTM", "lstm"))
    )
    + ", Transformer {f[transformer][nats per frame]}"
)
COMPREHENSIVE = "how much the probability of the output falls without the tokens that an explanation ranks highest"
SUMMARIES = ", ".join(
    f"{words} {{f[{name}][above plain]}} ({{f[{name}][above plain, interval]}})"
    for words, name in (("copying", "copying"), ("pre-trained", "pre-trained"), ("both", "both"))
)
RUN = "{f[minutes]} minutes, {f[parameters]:,} parameters"

HEADLINES: dict[str, dict[str, tuple[str, str]]] = {
    "Quality": {
        "dates": ("The demo: dates in 57 locales to ISO 8601, unseen days", "{f[exact]} % correct; " + RUN),
        "translate-29000": (
            "Multi30k En→De, raw text, default settings, test 2016",
            "sacreBLEU {f[bleu]} (13a, cased), chrF {f[chrf]}; " + RUN),
        "translate-5000": (
            "The first 5,000 pairs of Multi30k, default settings", "sacreBLEU {f[bleu]}, chrF {f[chrf]}; " + RUN),
        "translate-5000000": (
            "Five million generated pairs, default settings, the first 40 minutes",
            "{f[minutes]} minutes of {f[forecast]}; training loss every 50 steps: {f[loss]}"),
        "time-to-quality": (
            "Multi30k En→De on the input of the published 41.02 BLEU, our fast recipe, two seeds",
            "BLEU {f[BLEU on test 2016, each seed]} after {f[minutes, each seed]} minutes"),
        "multi30k-published": (
            "Multi30k En→De with the published recipe (41.02 BLEU), three seeds",
            "BLEU {f[BLEU on test 2016, each seed]} after {f[steps, each seed]} updates"),
        "pronounce": (
            "CMUdict, letters to phonemes without stress, unseen words",
            "{f[word_error, beam 5]} % of words wrong (published: 30.2 %); {f[minutes]} minutes on one busy core, "
            "{f[parameters]:,} parameters"),
        "code": (
            "Completing held-out files of Python's standard library; fill-in-the-middle (FIM) beside its left-to-right twin",
            "{f[whole files, left to right][fim][token accuracy, %]} % of tokens right, "
            "{f[whole files, left to right][fim][bits per byte]} bits per byte (twin "
            "{f[whole files, left to right][left to right][token accuracy, %]} %, "
            "{f[whole files, left to right][left to right][bits per byte]}); rest of a line exact "
            "{f[rest of a line][fim][exact match, %]} % "
            "(twin {f[rest of a line][left to right][exact match, %]} %), random middles "
            "{f[random middles][fim][bits per byte]} bits per byte "
            "(twin {f[random middles][left to right][bits per byte]})"),
        "scan": ("SCAN, percent of commands correct on the splits simple, length, add-jump", SCAN),
        "scan-lstm": (
            "SCAN with an LSTM without attention, percent of commands correct",
            "simple {f[simple][mean]} (published: 99.8), length {f[length][mean]} (13.8), add-jump {f[add-jump][mean]} (0.1)"),
        "seq2seq": (
            "Multi30k De→En as in the bentrevett notebooks (lower-cased words, ten epochs, greedy), tokenized BLEU, beside the "
            "published one",
            "LSTM {f[lstm][test BLEU]} (13.8), GRU {f[gru][test BLEU]} (20.6), GRU with attention "
            "{f[gru-attention][test BLEU]} (28.3), ConvS2S {f[convs2s][test BLEU]} (34.1), Transformer "
            "{f[transformer][test BLEU]} (36.5), ByteNet on characters {f[bytenet][test BLEU]} (–)"),
        "gpt": (
            "Characters of tinyshakespeare, nanoGPT's CPU configuration, whole validation split",
            "loss {f[loss]:.3f}; " + RUN),
        "gpt-nano": (
            "nanoGPT's own model and training loop, re-implemented, same data",
            "loss {f[loss on the whole split, mean]:.3f}, mean of three seeds"),
        "shakespeare": (
            "Characters of tinyshakespeare, our recipe, same parameters and tokens as nanoGPT's",
            "loss {f[loss]:.3f}; " + RUN),
        "babi-single": (
            "bAbI with 1,000 questions per task, a memory network for each: mean of 20 tasks",
            "{f[mean][ours]} % wrong, median of the runs {f[mean][median of runs]} % (published: {f[mean][published]} %)"),
        "babi-joint": (
            "bAbI with 1,000 questions per task, one memory network for all: mean of 20 tasks",
            "{f[mean][ours]} % wrong, median of the runs {f[mean][median of runs]} % (published: {f[mean][published]} %)"),
        "chorales": (
            "Bach's chorales in four voices (JSB, sixteenths), nats per word on the test",
            "relative positions {f[relative][nats per word]}, sinusoids {f[sinusoidal][nats per word]}; "
            "{f[MIDI][equal after words and MIDI]} of {f[MIDI][chorales]} chorales equal after words and MIDI"),
        "piano-jsb": ("Piano rolls of Bach's chorales (JSB), nats per frame on the test", PIANO),
        "piano-nottingham": ("Piano rolls of folk tunes (Nottingham), nats per frame on the test", PIANO),
        "recommend": (
            "Amazon Games, the last item of each user: SASRec, mean of three seeds, beside the published HR@10 0.741 and "
            "NDCG@10 0.536 against 100 sampled items",
            "HR@10 {f[sasrec, mean][sampled_hr@10]}, NDCG@10 {f[sasrec, mean][sampled_ndcg@10]}; BERT4Rec "
            "{f[bert4rec, seed 1][sampled_hr@10]} and {f[bert4rec, seed 1][sampled_ndcg@10]}, popularity "
            "{f[popularity][sampled_hr@10]} and {f[popularity][sampled_ndcg@10]}; among all items, NDCG@10: SASRec "
            "{f[sasrec, mean][ndcg@10]}, BERT4Rec {f[bert4rec, seed 1][ndcg@10]}, item-kNN {f[item-kNN][ndcg@10]}"),
        "neural-gpu-addition": (
            "A Neural GPU adds binary numbers, trained on at most 20 digits; seeds that make no error",
            "100 digits: {f[seeds without an error][100 digits]}, 200 digits: {f[seeds without an error][200 digits]}, ten "
            "sums of 2,000 digits: {f[seeds without an error][2000 digits]}; seed 1: {f[seed 1][exact, 100 digits]} % and "
            "{f[seed 1][exact, 200 digits]} % of 1,000 sums exact"),
        "output-tape": (
            "Extended Neural GPU beside a Transformer with as many steps, percent exact",
            "copy {f[copy][extended_neural_gpu][mean]} and {f[copy][transformer][mean]}, reverse "
            "{f[reverse][extended_neural_gpu][mean]} and {f[reverse][transformer][mean]}, dates "
            "{f[dates][extended_neural_gpu][mean]} and {f[dates][transformer][mean]}"),
        "hybrid": (
            "Recurrent or convolutional layers under attention, characters of tinyshakespeare, same number of parameters",
            "loss {f[attention][loss]} attention, {f[lstm][loss]} LSTM, {f[lstm under attention][loss]} LSTM under attention, "
            "{f[convolutions under attention][loss]} convolutions under attention"),
        "memory": (
            "Transformer-XL and Compressive Transformer beside a plain decoder, three seeds",
            "loss {f[plain][loss]:.3f} plain, {f[xl, memory 128][loss]:.3f} with memory, "
            "{f[compressive, memory 128][loss]:.3f} with compressed memory"),
        "vit-mnist": ("ViT on MNIST, the 10,000 test images", "{f[accuracy]} % correct; " + RUN),
        "vit-cifar": ("ViT on 20,000 images of CIFAR-10, 5,000 test images", "{f[accuracy]} % correct; " + RUN),
        "reformer": (
            "Reformer copies 31 symbols",
            "{f[right, 1 rounds]} % correct with one round of hashing, {f[right, 8 rounds]} % with eight"),
        "pretrain-protein": (
            "Secondary structure of proteins from 1,000 labeled chains, pre-trained against from scratch",
            "Q8 {f[1000 labelled chains][Q8][tuned]} against {f[1000 labelled chains][Q8][scratch]}"),
        "summarize": (
            "Summaries: synopses of Debian packages from their descriptions, ROUGE-L on the test",
            "first sentence {f[lead-1][rouge_l]}, plain {f[plain][rouge_l]} (seeds: {f[plain][seeds]}); above plain, with 95 % "
            "intervals over test items: " + SUMMARIES),
        "t5-two-tasks": (
            "One T5 for two tasks against one model for each",
            "summaries, chrF: {f[summarize, chrf, one model for both]} against {f[summarize, chrf, a model for each]}; "
            "phonemes, WER: {f[say, wer, one model for both]} against {f[say, wer, a model for each]}"),
        "smollm2": (
            "SmolLM2 135M from a GGUF file",
            "perplexity {f[perplexity]:.4f}; transformers gives {f[perplexity, transformers]:.4f}; with the file's "
            "4-bit blocks {f[tokens a second, regard native int4]} tokens/s, llama.cpp {f[tokens a second, llama.cpp]}"),
        "quality": (
            "All fast paths against their plain twins, three seeds",
            "difference {f[difference of the means]} BLEU, standard deviation over seeds "
            "{f[standard deviation over seeds]}; {f[minutes of all seeds, fast]} against "
            "{f[minutes of all seeds, plain]} minutes"),
        "quality-bfloat16": (
            "Training in bfloat16 against plain float32, three seeds",
            "difference {f[difference of the means]} BLEU, standard deviation over seeds {f[standard deviation over seeds]}"),
        "int8-bleu": (
            "Small weights on a trained model, Multi30k En→De, test 2016, beam 5",
            "BLEU {f[native int8, beam 5][BLEU]} in int8, {f[native int4, beam 5][BLEU]} in int4, "
            "{f[native int8, shortlist, beam 5][BLEU]} in int8 with a shortlist, {f[torch float32, beam 5][BLEU]} in float32; "
            "of 1,000 outputs in float32, {f[native float32, beam 5][outputs with the tokens of torch]} have the tokens of "
            "torch with beam 5, {f[native float32, greedy][outputs with the tokens of torch]} greedily"),
    },
    "Speed": {
        "bench-train-tiny": ("Training Transformer-Tiny", TRAIN),
        "bench-train-base": ("Training Transformer-Base", TRAIN),
        "bench-processes": (
            "Two cores against one thread",
            "rows on threads (the default) {f[rows on 2 threads (as it comes), times one thread]}×, "
            "torchrun {f[torchrun, 2 processes, times one thread]}×"),
        "bench-threads": (
            "Training beside a busy program",
            "{f[beside a busy program, soon asleep (ours)]:,} tokens/s; "
            "{f[beside a busy program, as libgomp has it]:,} with libgomp's default waiting"),
        "bench-busy": (
            "Training on two threads beside four busy processes of another session",
            "{f[alone, tokens/s]:,} tokens/s alone, {f[beside, tokens/s]:,} beside them: {f[share]}, where a fair half is 0.5"),
        "bench-lm-train": (
            "Training nanoGPT's CPU configuration",
            f"{SPEED}: {{f[nanoGPT][{BY}]}}× nanoGPT, {{f[transformers][{BY}]}}× transformers"),
        "bench-decode-tiny": ("Translating with Transformer-Tiny", DECODE),
        "bench-decode-base": ("Translating with Transformer-Base", DECODE),
        "bench-recurrent-small": (
            "Training an LSTM encoder-decoder",
            f"{SPEED}: {{f[torch.nn.LSTM][{BY}]}}× a plain loop around `torch.nn.LSTM`"),
        "bench-serve": (
            "`regard serve` with the native engine on one thread, a small Multi30k model, beam 5",
            "32 clients: {f[native][32 clients][sentences_per_second]} sentences/s, {f[native][of_offline]} of the same engine "
            "without a server, {f[native][to_ctranslate2]}× CTranslate2 behind FastAPI; asked for ten times what it can do: "
            "{f[native][10 × capacity][of_peak]} of that, refusals in "
            "{f[native][10 × capacity][refusal_ms][median_ms]} ms (median)"),
        "bench-shell-tiny": ("Lines from the shell with Transformer-Tiny, start-up included", SHELL),
        "bench-shell-base": ("Lines from the shell with Transformer-Base, start-up included", SHELL),
        "bench-lm-write": (
            "A decoder with 124 M parameters generates one text",
            f"{SPEED}: {{f[transformers][{BY}]}}× transformers, "
            f"{{f[ctranslate2 float32][{BY}]}}× CTranslate2 float32; in int8 {{f[ctranslate2 int8][{BY}]}}× CTranslate2 int8"),
    },
    "Comparing": {
        "study-pre-post": ("Pre-norm against post-norm", "{f[verdict]}"),
        "study-rotary": ("Rotary against sinusoidal positions", "{f[verdict]}"),
        "study-muon": ("Muon against AdamW, both tuned", "{f[verdict]}"),
        "study-ablate": ("One part at a time out of the Transformer", "{f[verdict]}"),
        "study-length": ("Position codes on texts four times as long as in training", "{f[verdict]}"),
        "study-calibration": ("Calibration with and without label smoothing", "{f[verdict]}"),
        "study-recurrence": ("Recurrent layers beside attention, by length and width", "{f[verdict]}"),
        "study-gradients": ("How far gradients reach, two layers as initialized", "{f[verdict]}"),
        "study-properties": ("Properties of layers that need no training", "{f[verdict]}"),
        "study-scaling": ("A run four times larger, predicted from a ladder", "{f[verdict]}"),
        "study-rates": ("Learning rates by width, with muP and without", "{f[verdict]}"),
        "study-transfer": ("Modifications on five tasks", "{f[verdict]}"),
        "statistics": (
            "False verdicts of `study compare` on equal contenders, 1,000 simulated studies each, at most 5 % wanted",
            "5 seeds: {f[false verdicts, seeds vary, 5 seeds][verdict]} %; where test items matter as much as seeds "
            "{f[false verdicts, seeds and items vary alike, 5 seeds][verdict]} % (tests over seeds and over items alone: "
            "{f[false verdicts, seeds and items vary alike, 5 seeds][seeds and items]} %); power at a known difference "
            "{f[power at 2.5, seeds vary, 5 seeds][verdict]} %, predicted "
            "{f[power at 2.5, seeds vary, 5 seeds][predicted]} %"),
    },
    "Explaining": {
        "faithfulness-dates": (f"Comprehensiveness of explanations, dates: {COMPREHENSIVE}", FAITHFUL),
        "faithfulness-translation": (f"Comprehensiveness of explanations, translation: {COMPREHENSIVE}", FAITHFUL),
        "faithfulness-classification": (f"Comprehensiveness of explanations, classification: {COMPREHENSIVE}", FAITHFUL),
        "look-inside": (
            "Exact attention weights of four rows of 16,384 tokens while the model runs fused; and the page of 512 tokens in "
            "12 × 12 heads in Chromium",
            "{f[4 rows of 2 heads recorded][peak MB]} MB of memory at most, {f[nothing recorded][peak MB]} MB without (all "
            "weights of a layer: {f[4 rows of 2 heads recorded][MB that all weights of one layer would take]:,} MB); opens in "
            "{f[the page of 512 tokens, 12 × 12 heads][seconds, median]} s"),
    },
    "Scaling": {
        "bench-attention": (
            "Attention over 16,384 tokens, forward and backward",
            "fused {f[fused 16384][ms]:,} ms, our tiles {f[flash 16384][ms]:,} ms, "
            "window of 512: {f[window 16384][ms]:,} ms"),
        "complexity": (
            "Growth with the length n, last three doublings: the exponent of n",
            "time: {f[time ∝ n^]}; memory: {f[memory ∝ n^]}"),
        "mixers": (
            "Every mixer on the same two tasks",
            "context 1,024: loss {f[decode full][loss]:.3f} full, {f[decode local][loss]:.3f} local, "
            "{f[decode performer][loss]:.3f} performer, {f[decode lsh][loss]:.3f} lsh"),
        "document": (
            "A document of 16,384 tokens through a Performer",
            "{f[encode][peak MB]} MB to read, {f[train][peak MB]:,} MB to train"),
        "large-corpora": (
            "A language model on 10 GB of text: memory, mapped files aside",
            "{f[lm, 10GB, peak MB preparing]} MB to prepare it, {f[lm, 10GB, peak MB training]} MB to train; with 1 GB "
            "{f[lm, 1GB, peak MB preparing]} and {f[lm, 1GB, peak MB training]} MB"),
        "large": (
            "Ten million pairs, prepared and trained on",
            "{f[peak MB preparing]:,} MB of memory at most, {f[minutes of preparation]} minutes of preparation"),
    },
}  # fmt: skip

README = (
    "dates", "translate-29000", "multi30k-published", "pronounce", "shakespeare", "vit-mnist", "smollm2",
    "bench-train-tiny", "bench-decode-tiny", "complexity",
)  # fmt: skip
"""Results that the README shows."""


class Figures(string.Formatter):
    """Formats figures for people: a list is its items with commas between them."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, list):
            return ", ".join(self.format_field(item, format_spec) for item in value)
        return str(super().format_field(value, format_spec))


def headline(name: str, figures: dict[str, Any]) -> tuple[str, str]:
    """The title of a result and its figures in one line."""
    title, template = next(rows[name] for rows in HEADLINES.values() if name in rows)
    return title, Figures().format(template, f=figures)
