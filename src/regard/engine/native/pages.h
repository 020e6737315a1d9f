// The memory of the key-value cache: pages that sentences take and give back.
#pragma once
#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "model.h"

namespace regard {

// Pages for all sentences of a call or a batch, whichever worker decodes them. A page holds the keys and values of PAGE tokens:
// first all of them for the first layer, then for the second … As many pages are kept for later as are in use, or KEPT bytes
// of them; the rest is freed.
class Pages {
  public:
    static constexpr int64_t KEPT = 1 << 22;
    explicit Pages(const Model& model)
        : slot(model.slot), floats_(PAGE * model.slot * std::max<int64_t>(model.decoder.mixes, 1)),
          kept_(size_t(KEPT / (std::max<int64_t>(floats_, 1) * int64_t(sizeof(float))))) {}
    Buffer<float> take();
    void give_back(std::vector<Buffer<float>>& pages) noexcept;
    int64_t bytes();  // of all pages, in use or not
    void forget();    // frees those that are not in use

    const int64_t slot;  // floats of one token in one layer

  private:
    const int64_t floats_;
    const size_t kept_;
    std::mutex mutex_;
    std::vector<Buffer<float>> spare_;
    size_t used_ = 0;
    int64_t freed_ = 0;  // bytes that the system may not have yet
};

// The tokens of a sentence in the cache. It gives its pages back when it is destroyed.
class Slots {
  public:
    explicit Slots(Pages& pages) : from_(pages) {}
    Slots(const Slots&) = delete;
    Slots& operator=(const Slots&) = delete;
    ~Slots() { give_back(); }
    // Returns the slot of a new token.
    float* add() {
        if (used_ == PAGE) {
            if (pages_.size() == pages_.capacity()) pages_.reserve(2 * pages_.size() + 1);  // so that no page is lost below
            pages_.push_back(from_.take()), used_ = 0;
        }
        return pages_.back().get() + from_.slot * used_++;
    }
    void give_back() {
        from_.give_back(pages_);
        used_ = PAGE;
    }

  private:
    Pages& from_;
    std::vector<Buffer<float>> pages_;
    int64_t used_ = PAGE;
};

}  // namespace regard
