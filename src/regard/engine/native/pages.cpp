#include "pages.h"

#if defined(__linux__)
#include <malloc.h>
#endif

namespace regard {
namespace {

constexpr int64_t TOLD = 1 << 25;  // freed bytes after which the C library is asked to return memory to the system

}  // namespace

Buffer<float> Pages::take() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (spare_.empty()) {
        Buffer<float> made(floats_);
        used_++;
        return made;
    }
    Buffer<float> page(std::move(spare_.back()));
    spare_.pop_back();
    used_++;
    return page;
}

void Pages::give_back(std::vector<Buffer<float>>& pages) noexcept {
    if (pages.empty()) return;
    bool tell = false;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        used_ -= pages.size();
        const size_t most = std::max(used_, kept_);
        try {
            for (; !pages.empty() && spare_.size() < most; pages.pop_back()) spare_.push_back(std::move(pages.back()));
            for (; spare_.size() > most; spare_.pop_back()) pages.push_back(std::move(spare_.back()));
        } catch (const std::bad_alloc&) {
            // No memory for the lists: what could not be kept is freed below.
        }
        freed_ += int64_t(pages.size()) * floats_ * int64_t(sizeof(float));
        if (freed_ >= TOLD) tell = true, freed_ = 0;
    }
    pages.clear();
#if defined(__GLIBC__)
    if (tell) malloc_trim(0);  // pages lie between smaller blocks, which keep it from returning them by itself
#else
    (void)tell;
#endif
}

int64_t Pages::bytes() {
    std::lock_guard<std::mutex> lock(mutex_);
    return int64_t(used_ + spare_.size()) * floats_ * int64_t(sizeof(float));
}

void Pages::forget() {
    std::lock_guard<std::mutex> lock(mutex_);
    spare_.clear();
}

}  // namespace regard
