// Ending a call early.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <vector>

#include "weights.h"

namespace regard {

struct Stopped : Refused {
    Stopped() : Refused("the call was stopped") {}
};

// Flags that other threads set, at any time, to end a call. Its own threads look at them between the parts of a pass.
class Stop {
  public:
    Stop() = default;
    Stop(const int32_t* const* flags, int64_t count) {
        if (flags && count > 0) flags_.assign(flags, flags + count);
    }
    Stop(const Stop&) = delete;
    Stop& operator=(const Stop&) = delete;
    // Whether to end. Once it is true it stays true: what was left out after a look must not be used.
    bool look() const {
        if (set_.load(std::memory_order_relaxed)) return true;
        for (const int32_t* flag : flags_)
            if (__atomic_load_n(flag, __ATOMIC_RELAXED)) {
                set_.store(true, std::memory_order_relaxed);
                return true;
            }
        return false;
    }
    void check() const {
        if (look()) throw Stopped();
    }

  private:
    std::vector<const int32_t*> flags_;
    mutable std::atomic<bool> set_{false};
};

// Throws what a thread threw, if one did: an error rather than `Stopped`.
inline void rethrow(const std::vector<std::exception_ptr>& errors) {
    bool stopped = false;
    for (const auto& error : errors) {
        try {
            if (error) std::rethrow_exception(error);
        } catch (const Stopped&) {
            stopped = true;
        }
    }
    if (stopped) throw Stopped();
}

}  // namespace regard
