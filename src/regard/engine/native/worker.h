// Sentences that are being decoded, and the worker that takes steps with them: greedy search, beam search and sampling, with the
// same results as decode/greedy.py, decode/beam.py and decode/sample.py.
#pragma once
#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "search.h"
#include "shortlist.h"

namespace regard {

constexpr double NEVER = -std::numeric_limits<double>::infinity();  // the log-probability of the impossible
constexpr int PERIODS = 16;           // the longest cycle that the repetition guard detects
constexpr int64_t PROMPT_ROWS = 512;  // prompt or source tokens that are read together

// Forbids the token that continues a cycle which already repeated for longer than the source: RepetitionGuard in
// decode/token_constraints.py.
struct Guard {
    int32_t history[PERIODS], run[PERIODS];
    Guard() {
        std::fill_n(history, PERIODS, -1);
        std::fill_n(run, PERIODS, 0);
    }
    void update(int32_t token) {
        for (int p = 0; p < PERIODS; p++) run[p] = history[p] == token ? run[p] + 1 : 0;
        std::memmove(history + 1, history, sizeof(int32_t) * (PERIODS - 1));
        history[0] = token;
    }
    void forbid(int64_t patience, std::vector<int32_t>& out) const {
        for (int p = 0; p < PERIODS; p++)
            if (run[p] + p + 1 > patience && run[p] >= 2 * (p + 1)) out.push_back(history[p]);
    }
};

struct Running {
    double total = 0;          // log-probability; never −inf in a beam
    int32_t last = 0;
    std::vector<float*> past;  // the slots of all tokens it has read
    Guard guard;
};

struct Finished {
    double score = NEVER, total = NEVER;
    int64_t parent = 0, length = 0;
    int32_t token = 0;
};

struct Move {
    int64_t parent;
    int32_t token;
};

struct Sentence {
    Input input;
    const Request* request = nullptr;
    int64_t read = 0;   // prompt tokens that were read; the first step reads the last one
    int64_t step = 0;
    int32_t written = -1;  // by the last step; -1: it ended, or it is a beam, whose tokens may still change
    Memory memory;
    std::unique_ptr<Candidates> candidates;  // of the shortlist; null: the whole vocabulary
    std::vector<Running> running;
    std::vector<std::vector<Move>> trail;
    std::vector<Finished> finished;  // best first
    std::vector<Hypothesis> out;     // once it is over
    Slots slots;
    bool ready = false, over = false;  // to take steps; finished
    Sentence(const Model& model, const Input& input, const Request& request, Pages& pages);
    // Convert between tokens and the numbers of the head's outputs.
    int32_t number_of(int32_t token) const { return candidates ? candidates->find(token) : token; }
    int32_t token_of(int32_t number) const { return candidates ? candidates->ids[size_t(number)] : number; }
    const uint8_t* banned() const { return candidates ? candidates->banned.data() : request->banned.data(); }
};

// Takes steps with any sentences: they may have different requests, and another worker may have started them.
class Worker {
  public:
    explicit Worker(const Model& model, Team* team = nullptr) : model_(model), forward_(model, team) {}
    // Encodes the sources of these sentences together.
    void encode(const std::vector<Sentence*>& some);
    // Reads at most `most` further tokens of a prompt; returns how many it read.
    int64_t read_prompt(Sentence& s, int64_t most);
    // Encodes the sources, or reads the prompts to the end.
    void start(const std::vector<Sentence*>& some);
    // One token for every hypothesis of every sentence.
    void step(const std::vector<Sentence*>& some);
    // Lets the calls below end with `Stopped`. Every sentence then is as if they had not been made, or as if they had returned.
    void watch(const Stop& stop) { forward_.watch(stop), stop_ = &stop; }
    bool shares() const { return forward_.shares; }
    void share(bool yes) { forward_.shares = yes; }  // whether the team shares large products

  private:
    struct Candidate {
        double total;
        int64_t parent;
        int32_t token;
    };
    void score(const std::vector<Sentence*>& some, bool samples);
    void extend(Sentence& s, size_t& row);
    void extend_beam(Sentence& s, size_t& row);

    const Model& model_;
    Forward forward_;
    const Stop never_, *stop_ = &never_;
    Rows rows_;
    std::vector<int64_t> which_;
    std::vector<Top> tops_;
    std::vector<int32_t> also_;
    std::vector<Candidate> candidates_;
    std::vector<float> probs_, scratch_;
    Buffer<float> values_, logits_;
    Buffer<int32_t> ids_;
};

}  // namespace regard
