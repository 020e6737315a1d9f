// Sequences that are decoded together, one step at a time; they join and leave between steps.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "worker.h"

namespace regard {

// What a step did for a sequence.
struct Change {
    int64_t sequence;
    int32_t written;               // a token, or -1: none (an end mark, or a beam, which may still change its mind)
    bool over;
    std::vector<Hypothesis> out;   // once it is over
};

// What a sequence gives does not depend on the others. `add` and `remove` only note what is asked, and may be called while
// another thread takes a step; one thread at a time takes steps.
class Batch {
  public:
    Batch(const Model& model, Team& team);
    // Joins with the next step; returns the sequence's number. The spans of the input need not stay.
    int64_t add(const Input& input, Request request);
    // Leaves before the next step, and gives nothing more; false if there is no such sequence. -1: all leave.
    bool remove(int64_t sequence);
    // Reads at most PROMPT_ROWS tokens of new sequences (but one source in any case), then takes one step with all that are ready.
    std::vector<Change> step();
    int64_t size();  // of those that are not over, and not removed

  private:
    struct Sequence {
        std::vector<int32_t> source, prefix;
        Request request;
        std::unique_ptr<Sentence> sentence;
        bool removed = false;
    };
    void read_new(const std::vector<Sequence*>& now);
    void take_step(const std::vector<Sentence*>& ready);

    const Model& model_;
    Team& team_;
    std::mutex mutex_;  // of the map
    std::map<int64_t, std::unique_ptr<Sequence>> sequences_;
    int64_t next_ = 0, steps_ = 0, rows_ = -1;
    bool failed_ = false;
    std::vector<std::unique_ptr<Worker>> workers_;  // the first one can share its work
    Sharing sharing_;
};

}  // namespace regard
