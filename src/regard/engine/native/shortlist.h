// A lexical shortlist: which tokens an output may contain, given the tokens of its source.
#pragma once
#include <memory>
#include <vector>

#include "search.h"

namespace regard {

// The tokens that one sentence may write, and their rows of the output projection. Its outputs are numbered 0, 1, …; `ids` has
// their tokens. Each sentence has its own, so that its output does not depend on the others of a batch.
struct Candidates {
    std::vector<int32_t> ids;     // ascending, so that ties are ordered as in the whole vocabulary
    std::vector<uint8_t> banned;  // one byte per candidate
    Linear head;
    int32_t find(int32_t token) const;  // the number of a token; -1: not a candidate
};

// The candidates of an input: those of its source tokens, those of any source, its prefix and the end mark. Null if the model
// has no shortlist.
std::unique_ptr<Candidates> choose_candidates(const Model& model, const Input& input, const Request& request);

}  // namespace regard
