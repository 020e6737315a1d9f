// Threads that run one function together, either independent workers or parts of one product.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace regard {

// Helpers that wait for work spin for about ten microseconds and then sleep, because a spinning thread occupies a core that
// another program may need.
class Team {
  public:
    explicit Team(int threads);  // has fewer if the system refuses some
    ~Team();
    int size() const { return int(helpers_.size()) + 1; }
    // Calls f(0) here and f(1), f(2) … in the helpers, and waits for all. f must not throw.
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
