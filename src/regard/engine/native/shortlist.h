// A lexical shortlist: which tokens an output may contain, given the tokens of its source.
#pragma once
#include <memory>
#include <vector>

#include "search.h"

namespace regard {

// The tokens that one sentence may write, and their part of the output projection. Everything that is found with it counts by
// its own order; `ids` are the tokens. What a sentence gives therefore does not depend on the others of a batch.
struct Candidates {
    std::vector<int32_t> ids;     // ascending, so that equal scores are ordered as in the whole vocabulary
    std::vector<uint8_t> banned;  // one byte per candidate
    Linear head;
    int32_t find(int32_t token) const;  // its place; -1: it is no candidate
};

// The candidates of an input: those of its source tokens, those of every sentence, its prefix and the end mark. None if the
// model has no shortlist: the whole vocabulary.
std::unique_ptr<Candidates> choose_candidates(const Model& model, const Input& input, const Request& request);

}  // namespace regard
