// Continuous batching: sequences are decoded together, one step at a time, and join and leave between steps.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "worker.h"

namespace regard {

// What a step did with a sequence.
struct Change {
    int64_t sequence;
    int32_t written;               // a token; -1: none (it ended, or it is a beam, whose tokens may still change)
    bool over;
    std::vector<Hypothesis> out;   // if it is over
};

// The output of a sequence does not depend on the others. `add` and `remove` take effect at the next step, and may be called while
// another thread takes one; only one thread at a time takes steps.
class Batch {
  public:
    Batch(const Model& model, Team& team);
    // Adds a sequence and returns its number. The input is copied.
    int64_t add(const Input& input, Request request);
    // Removes a sequence, or all (-1); returns whether there was one. It appears in no later step.
    bool remove(int64_t sequence);
    // Reads at most PROMPT_ROWS tokens of new sequences, but at least one source; then takes one step with all that are ready.
    // If it is stopped, the next step tells what it did.
    std::vector<Change> step(const Stop& stop);
    int64_t tokens();  // that the next step reads and writes, at most; only for the thread that takes steps
    int64_t size();   // sequences that are neither finished nor removed
    int64_t bytes() { return pages_.bytes(); }  // of the key-value cache

  private:
    struct Sequence {
        std::vector<int32_t> source, prefix;
        Request request;
        std::unique_ptr<Sentence> sentence;
        bool removed = false;
    };
    struct Stepping;
    void read_new(const std::vector<Sequence*>& now);
    void take_step(const std::vector<Sentence*>& ready);

    const Model& model_;
    Team& team_;
    Pages pages_;       // of all workers: a sequence may be started by one and finished by another
    std::mutex mutex_;  // guards the map, the flags `removed` and `stepping_`, and `untold_`
    std::map<int64_t, std::unique_ptr<Sequence>> sequences_;
    int64_t next_ = 0, steps_ = 0, rows_ = -1;
    bool failed_ = false, stepping_ = false;
    std::vector<Change> untold_;  // of steps that were stopped
    std::vector<std::unique_ptr<Worker>> workers_;  // the team can share the work of the first
    Sharing sharing_;
};

}  // namespace regard
