// Threads that run one function together: independent workers, or the shares of one product.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace regard {

// Helpers wait for work by spinning for some ten microseconds, then they sleep: a spinning thread holds a core that another
// program may need.
class Team {
  public:
    explicit Team(int threads);  // fewer, if the system refuses so many
    ~Team();
    int size() const { return int(helpers_.size()) + 1; }
    // Calls f(0) here and f(1), f(2) … in the helpers; returns when all have returned. f must not throw.
    void run(const std::function<void(int)>& f);

  private:
    void help(int number);
    std::vector<std::thread> helpers_;
    const std::function<void(int)>* task_ = nullptr;
    std::atomic<uint64_t> round_{0};
    std::atomic<int> busy_{0}, asleep_{0};
    std::atomic<bool> over_{false};
    std::mutex mutex_;
    std::condition_variable wake_;
};

}  // namespace regard
