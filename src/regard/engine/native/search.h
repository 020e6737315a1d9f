// What is searched for, and how; whole calls: decoding many inputs, scoring, encoding.
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
    int64_t hypotheses() const { return sample ? 1 : beam; }  // that run side by side
};

// How outputs are searched for; inputs that are decoded together may have different ones.
struct Request {
    Search how;
    std::vector<uint8_t> banned;  // one byte per token of the vocabulary
};

struct Span {
    const int32_t* data = nullptr;
    int64_t n = 0;
};

// One input: with an encoder its source, otherwise the tokens that are continued.
struct Input {
    Span source, prefix;
    int64_t limit = 1;
    uint64_t number = 0;  // which random numbers it draws
};

struct Hypothesis {
    std::vector<int32_t> tokens;
    double log_prob = 0, score = 0;
};

// Whether the threads should share the work of a step: found out by comparing steps, and taken back when it no longer pays. A
// helper that another program keeps waiting makes steps much longer, and that may begin at any time.
struct Sharing {
    static constexpr int TRIALS = 8, TRUSTED = 64;  // steps of a comparison; calls until the next one
    int choice = -1, calls = 0;                     // -1: not known yet
    int64_t beam = 0;
    double means[2] = {-1, -1};                     // seconds of a step, moving averages: apart, shared

    void begin(int64_t hypotheses) {
        if (calls++ % TRUSTED == 0 || beam != hypotheses) *this = {-1, calls, hypotheses, {-1, -1}};
    }
    // Notes what step number `steps` took; returns whether the next one is shared.
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
                                            const Request& request, Sharing& sharing);

// The log-probability of each token of each target (`prefix`; the end mark included), after the source.
std::vector<std::vector<double>> score_targets(const Model& model, const std::vector<Input>& inputs, int32_t bos);

// The encoder's output for each source, one after another: (tokens, width) into `out`.
void encode_sources(const Model& model, Team& team, const std::vector<Span>& sources, float* out);

}  // namespace regard
