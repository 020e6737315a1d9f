#include "shortlist.h"

#include <algorithm>
#include <cstring>

namespace regard {
namespace {

// Copies the weights of one output of a packed matrix: pieces of 4 bytes (one quad, or one float), 64 bytes apart.
void copy_output(const uint8_t* from, int64_t row, uint8_t* to, int64_t i, int64_t pieces) {
    from += row / LANES * pieces * 64 + row % LANES * 4, to += i / LANES * pieces * 64 + i % LANES * 4;
    for (int64_t p = 0; p < pieces; p++) std::memcpy(to + p * 64, from + p * 64, 4);
}

// The same for a matrix in blocks: copies the scale, the minimum and the numbers of each block.
void copy_blocks(const Matrix& m, int64_t row, uint8_t* to, int64_t i) {
    const int64_t bytes = m.block_bytes(), pieces = (bytes - 4 * LANES) / 64;
    for (int64_t b = 0; b < m.block_count(); b++) {
        const uint8_t* block = m.blocks + (row / LANES * m.block_count() + b) * bytes;
        uint8_t* out = to + (i / LANES * m.block_count() + b) * bytes;
        for (int64_t half : {int64_t(0), LANES})
            std::memcpy(out + 2 * (half + i % LANES), block + 2 * (half + row % LANES), 2);
        copy_output(block + 4 * LANES, row % LANES, out + 4 * LANES, i % LANES, pieces);
    }
}

void select_outputs(const Matrix& from, const std::vector<int32_t>& rows, Linear& out) {
    Matrix& m = out.matrix;
    m = from;
    m.n = int64_t(rows.size());
    const int64_t lanes = m.panels() * LANES, size = m.panels() * from.panel_bytes();
    uint8_t* to = out.bytes.need(size);
    std::memset(to, 0, size_t(size));
    if (from.blocks) m.blocks = to;
    else if (from.bytes) m.bytes = to;
    else m.floats = reinterpret_cast<const float*>(to);
    const auto select = [&](const float* values, Buffer<float>& buffer) -> const float* {
        if (!values) return nullptr;
        float* made = buffer.need(lanes);
        std::fill(made, made + lanes, 0.0f);
        for (size_t i = 0; i < rows.size(); i++) made[i] = values[rows[i]];
        return made;
    };
    m.scale = select(from.scale, out.scale), m.bias = select(from.bias, out.bias);
    for (int64_t i = 0; i < m.n; i++) {
        const int64_t row = rows[size_t(i)];
        if (from.blocks) copy_blocks(from, row, to, i);
        else if (from.bytes) copy_output(from.bytes, row, to, i, from.quads());
        else copy_output(reinterpret_cast<const uint8_t*>(from.floats), row, to, i, from.k);
    }
}

}  // namespace

int32_t Candidates::find(int32_t token) const {
    const auto at = std::lower_bound(ids.begin(), ids.end(), token);
    return at != ids.end() && *at == token ? int32_t(at - ids.begin()) : -1;
}

std::unique_ptr<Candidates> choose_candidates(const Model& model, const Input& input, const Request& request) {
    const Shortlist& list = model.shortlist;
    if (!list) return nullptr;
    auto out = std::make_unique<Candidates>();
    std::vector<uint8_t> wanted(size_t(model.vocab), 0);
    const auto want = [&](const int32_t* ids, int64_t n) {
        for (int64_t i = 0; i < n; i++) wanted[size_t(ids[i])] = 1;
    };
    want(list.always.data(), int64_t(list.always.size()));
    want(input.prefix.data, input.prefix.n);
    if (request.how.eos >= 0) want(&request.how.eos, 1);
    for (int64_t i = 0; i < input.source.n; i++) {
        const size_t token = size_t(input.source.data[i]);
        want(list.ids.data() + list.starts[token], list.starts[token + 1] - list.starts[token]);
    }
    for (int64_t i = 0; i < model.vocab; i++)
        if (wanted[size_t(i)]) out->ids.push_back(int32_t(i)), out->banned.push_back(request.banned[size_t(i)]);
    if (out->ids.empty()) out->ids.push_back(0), out->banned.push_back(request.banned[0]);
    select_outputs(model.head.matrix, out->ids, out->head);
    return out;
}

}  // namespace regard
