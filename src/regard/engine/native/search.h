// Search settings, and whole calls: decoding many inputs, scoring, encoding.
#pragma once
#include <cstdint>
#include <vector>

#include "forward.h"

namespace regard {

struct Search {
    int64_t beam = 1, n_best = 1;
    enum Penalty : int { gnmt, power, none } penalty = gnmt;
    double alpha = 0.6;
    bool sample = false;
    double temperature = 1, top_p = 1, min_p = 0;
    int64_t top_k = 0;
    uint64_t seed = 1;
    int64_t first_step = 0;
    bool repetition_guard = false;
    int32_t bos = 0, eos = 0;
    double divisor(int64_t length) const;
    int64_t hypotheses() const { return sample ? 1 : beam; }  // that are decoded side by side
};

// The settings of a request; inputs that are decoded together may have different ones.
struct Request {
    Search how;
    std::vector<uint8_t> banned;  // one byte per token of the vocabulary
};

struct Span {
    const int32_t* data = nullptr;
    int64_t n = 0;
};

// One input: the source of an encoder, or the prompt of a decoder alone.
struct Input {
    Span source, prefix;
    int64_t limit = 1;
    uint64_t number = 0;  // selects its random numbers
};

struct Hypothesis {
    std::vector<int32_t> tokens;
    double log_prob = 0, score = 0;
};

// Decides whether the threads share the work of a step, by timing steps of both kinds. It may change its mind: when another
// program takes the core of a helper, shared steps become much slower, and that can happen at any time.
struct Sharing {
    static constexpr int TRIALS = 8, TRUSTED = 64;  // steps of a trial; calls until the next trial
    int choice = -1, calls = 0;                     // -1: undecided
    int64_t beam = 0;
    double means[2] = {-1, -1};                     // moving averages of the seconds of a step: alone, shared

    void begin(int64_t hypotheses) {
        if (calls++ % TRUSTED == 0 || beam != hypotheses) *this = {-1, calls, hypotheses, {-1, -1}};
    }
    // Records the time of step number `steps`; returns whether to share the next one.
    bool next(int64_t steps, bool shared, double seconds) {
        double& mean = means[shared];
        if (steps > 0) mean = mean < 0 ? seconds : 0.75 * mean + 0.25 * seconds;
        const bool known = means[0] >= 0 && means[1] >= 0;
        if (choice < 0 && steps < TRIALS) return steps % 2 == 0;
        if (choice < 0) choice = known && means[1] < 0.95 * means[0];
        if (choice == 1 && known && means[1] > 1.1 * means[0]) choice = 0;
        return choice == 1;
    }
};

// The hypotheses of each input, best first.
std::vector<std::vector<Hypothesis>> search(const Model& model, Team& team, const std::vector<Input>& inputs,
                                            const Request& request, Sharing& sharing, const Stop& stop);

// The log-probability of each token of each target, which is the `prefix` of its input.
std::vector<std::vector<double>> score_targets(const Model& model, const std::vector<Input>& inputs, int32_t bos,
                                               const Stop& stop);

// Writes the encoder's output for all sources to `out`, (tokens, width).
void encode_sources(const Model& model, Team& team, const std::vector<Span>& sources, float* out, const Stop& stop);

}  // namespace regard
