// The C interface: checks what a caller passes, and turns exceptions into messages.
#include "regard_engine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "search.h"

struct regard_model {
    std::unique_ptr<regard::Model> model;
    std::unique_ptr<regard::Team> team;
    std::mutex mutex;  // one call at a time
    regard::Sharing sharing;
};

namespace regard {

#define REGARD_TABLE(isa) namespace isa { extern const Kernels table; }
#if defined(__x86_64__)
REGARD_TABLE(vnni)
REGARD_TABLE(avx512)
REGARD_TABLE(avx2)
#endif
REGARD_TABLE(portable)

namespace {

#if defined(__x86_64__)
// Asks the processor itself: the compilers' own function does not link into a library with all of them.
struct Processor {
    bool avx2 = false, avx512 = false, vnni = false;
    Processor() {
        unsigned a, b, c, d, low, high;
        if (!__get_cpuid(1, &a, &b, &c, &d)) return;
        const bool fma = c >> 12 & 1, saves = c >> 27 & 1;  // whether the system saves wide registers
        if (!fma || !saves) return;
        asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        if ((low & 0x6) != 0x6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
        avx2 = b >> 5 & 1;
        avx512 = avx2 && (low & 0xE6) == 0xE6 && (b >> 16 & 1) && (b >> 17 & 1) && (b >> 30 & 1) && (b >> 31 & 1);  // F DQ BW VL
        vnni = avx512 && (c >> 11 & 1);
    }
};
const Processor& processor() {
    static const Processor found;
    return found;
}
bool has_avx2() { return processor().avx2; }
bool has_avx512() { return processor().avx512; }
bool has_vnni() { return processor().vnni; }
#endif
bool has_portable() { return true; }

const Choice CHOICES[] = {
#if defined(__x86_64__)
    {&vnni::table, has_vnni}, {&avx512::table, has_avx512}, {&avx2::table, has_avx2},
#endif
    {&portable::table, has_portable},
};

struct Found : regard_found {
    std::vector<int64_t> outputs_, lengths_;
    std::vector<int32_t> tokens_;
    std::vector<double> log_probs_, scores_;
    void seal() {
        count = int64_t(outputs_.size());
        outputs = outputs_.data(), lengths = lengths_.data(), tokens = tokens_.data();
        log_probs = log_probs_.data(), scores = scores_.data();
    }
};

template <class F>
auto guarded(char* error, int64_t size, F f, decltype(f()) failed) -> decltype(f()) {
    std::string said = "unexpected error";
    try {
        return f();
    } catch (const Refused& refused) {
        said = refused.what();
    } catch (const std::bad_alloc&) {
        said = "out of memory";
    } catch (const std::exception& other) {
        said = other.what();
    } catch (...) {
    }
    if (error && size > 0) {
        const size_t n = std::min(said.size(), size_t(size - 1));
        std::memcpy(error, said.data(), n);
        error[n] = 0;
    }
    return failed;
}

constexpr int64_t MAX_TOKENS = INT64_C(1) << 31, MAX_LIMIT = 1 << 24, MAX_BEAM = 1024;

// Every token of every row is in the vocabulary, and no row is longer than `room`.
std::vector<Span> read_texts(const regard_texts& texts, int64_t vocab, int64_t least, int64_t room) {
    std::vector<Span> out;
    if (texts.count < 0 || texts.count > MAX_TOKENS) throw Refused("the number of texts is out of range");
    for (int64_t i = 0; i < texts.count; i++) {
        const int64_t from = texts.starts[i], to = texts.starts[i + 1];
        if (from < 0 || to < from || to > MAX_TOKENS) throw Refused("the texts have no valid starts");
        if (to - from < least) throw Refused("a text has no tokens");
        if (room >= 0 && to - from > room) throw Refused("a text is longer than the model has positions");
        for (int64_t t = from; t < to; t++)
            if (texts.ids[t] < 0 || texts.ids[t] >= vocab) throw Refused("a token is outside the vocabulary");
        out.push_back({texts.ids + from, to - from});
    }
    return out;
}

Search read_search(const regard_search& given, const Model& model) {
    Search out;
    const auto within = [](double value, double low, double high, const char* what) {
        if (!(value >= low && value <= high)) throw Refused(std::string(what) + " is out of range");
    };
    within(double(given.beam), 1, MAX_BEAM, "beam");
    within(double(given.n_best), 1, double(given.beam), "n_best");
    within(double(given.penalty), 0, 2, "the length penalty");
    within(given.alpha, -10, 10, "alpha");
    within(given.temperature, 1e-3, 1e3, "temperature");
    within(given.top_p, 0, 1, "top_p");
    within(given.min_p, 0, 1, "min_p");
    within(double(given.top_k), 0, 1e10, "top_k");
    within(double(given.first_step), 0, 1e15, "the first step");
    within(double(given.bos), 0, double(model.vocab - 1), "the start mark");
    within(double(given.eos), -1, double(model.vocab - 1), "the end mark");
    out.beam = given.beam, out.n_best = given.n_best, out.penalty = Search::Penalty(given.penalty), out.alpha = given.alpha;
    out.sample = given.sample != 0, out.temperature = given.temperature, out.top_p = given.top_p, out.min_p = given.min_p;
    out.top_k = given.top_k, out.seed = given.seed, out.first_step = given.first_step;
    out.repetition_guard = given.repetition_guard != 0 && model.has_encoder;
    out.bos = int32_t(given.bos), out.eos = int32_t(given.eos);
    return out;
}

std::vector<Input> read_inputs(const Model& model, const regard_texts* sources, const regard_texts* prefixes, int64_t least) {
    if (!sources || !prefixes) throw Refused("the texts are missing");
    std::vector<Input> inputs;
    const int64_t vocab = model.has_encoder ? model.source_vocab : model.vocab;
    for (const Span& source : read_texts(*sources, vocab, 1, model.room(model.has_encoder))) {
        inputs.emplace_back();
        inputs.back().source = source;
    }
    const std::vector<Span> begun = read_texts(*prefixes, model.vocab, least, -1);
    if (!begun.empty() && begun.size() != inputs.size()) throw Refused("there should be one prefix or target per source");
    for (size_t i = 0; i < begun.size(); i++) inputs[i].prefix = begun[i];
    return inputs;
}

}  // namespace

const Choice* list_kernels(int* count) {
    *count = int(sizeof CHOICES / sizeof CHOICES[0]);
    return CHOICES;
}

const Kernels* choose_kernels(const char* name) {
    const bool any = !name || !*name || !std::strcmp(name, "auto");
    for (const Choice& choice : CHOICES)
        if (choice.supported() && (any || !std::strcmp(name, choice.kernels->name))) return choice.kernels;
    return nullptr;
}

}  // namespace regard

using namespace regard;

extern "C" {

int regard_abi(void) { return REGARD_ABI; }

const char* regard_kernels(int i, int* supported) {
    int count;
    const Choice* all = list_kernels(&count);
    if (i < 0 || i >= count) return nullptr;
    if (supported) *supported = all[i].supported();
    return all[i].kernels->name;
}

regard_model* regard_load(const double* plan, int64_t words, const void* weights, int64_t bytes, int int8, int threads,
                          const char* kernels, char* error, int64_t error_size) {
    return guarded(error, error_size, [&]() -> regard_model* {
        if (!plan || words < 0 || !weights || bytes < 0) throw Refused("there is no plan or no weights");
        const Kernels* chosen = choose_kernels(kernels);
        if (!chosen) throw Refused("these kernels are unknown, or not for this processor");
        auto out = std::make_unique<regard_model>();
        out->model = read_model(plan, words, static_cast<const unsigned char*>(weights), bytes, int8 != 0, chosen);
        out->team = std::make_unique<Team>(std::clamp(threads, 1, 256));
        return out.release();
    }, nullptr);
}

void regard_free_model(regard_model* model) { delete model; }
int64_t regard_model_bytes(const regard_model* model) { return model->model->bytes; }
const char* regard_model_kernels(const regard_model* model) { return model->model->kernels->name; }

regard_found* regard_decode(regard_model* model, const regard_texts* sources, const regard_texts* prefixes,
                            const int64_t* limits, const int64_t* numbers, const int32_t* banned, int64_t n_banned,
                            const regard_search* search, char* error, int64_t error_size) {
    return guarded(error, error_size, [&]() -> regard_found* {
        if (!model || !limits || !numbers || !search || n_banned < 0 || (n_banned && !banned)) throw Refused("arguments are missing");
        std::lock_guard<std::mutex> lock(model->mutex);
        const Model& m = *model->model;
        const Search how = read_search(*search, m);
        std::vector<Input> inputs = read_inputs(m, sources, prefixes, 0);
        const int64_t room = m.room(false);
        for (size_t i = 0; i < inputs.size(); i++) {
            inputs[i].limit = limits[i], inputs[i].number = uint64_t(numbers[i]);
            const int64_t read = m.has_encoder ? 0 : inputs[i].source.n - 1;
            if (limits[i] < 1 || limits[i] > MAX_LIMIT || (room >= 0 && limits[i] + read > room))
                throw Refused("the limit of an output is out of range");
        }
        std::vector<uint8_t> never(size_t(m.vocab), 0);
        for (int64_t i = 0; i < n_banned; i++) {
            if (banned[i] < 0 || banned[i] >= m.vocab) throw Refused("a banned token is outside the vocabulary");
            never[size_t(banned[i])] = 1;
        }
        auto found = std::make_unique<Found>();
        for (const auto& each : regard::search(m, *model->team, inputs, how, never, model->sharing)) {
            found->outputs_.push_back(int64_t(each.size()));
            for (const Hypothesis& h : each) {
                found->lengths_.push_back(int64_t(h.tokens.size()));
                found->tokens_.insert(found->tokens_.end(), h.tokens.begin(), h.tokens.end());
                found->log_probs_.push_back(h.log_prob), found->scores_.push_back(h.score);
            }
        }
        found->seal();
        return found.release();
    }, nullptr);
}

regard_found* regard_score(regard_model* model, const regard_texts* sources, const regard_texts* targets, int64_t bos,
                           char* error, int64_t error_size) {
    return guarded(error, error_size, [&]() -> regard_found* {
        if (!model) throw Refused("arguments are missing");
        std::lock_guard<std::mutex> lock(model->mutex);
        const Model& m = *model->model;
        if (bos < 0 || bos >= m.vocab) throw Refused("the start mark is outside the vocabulary");
        const std::vector<Input> inputs = read_inputs(m, sources, targets, 1);
        const int64_t room = m.room(false);
        for (const Input& input : inputs)
            if (!input.prefix.n || (room >= 0 && (m.has_encoder ? 0 : input.source.n - 1) + input.prefix.n > room))
                throw Refused("a target is missing, or longer than the model has positions");
        auto found = std::make_unique<Found>();
        for (const auto& each : score_targets(m, inputs, int32_t(bos))) {
            found->outputs_.push_back(1), found->lengths_.push_back(int64_t(each.size()));
            found->log_probs_.insert(found->log_probs_.end(), each.begin(), each.end());
        }
        found->seal();
        return found.release();
    }, nullptr);
}

int64_t regard_encode(regard_model* model, const int32_t* ids, int64_t n, float* out, int64_t size, char* error,
                      int64_t error_size) {
    return guarded(error, error_size, [&]() -> int64_t {
        if (!model || !ids || !out) throw Refused("arguments are missing");
        std::lock_guard<std::mutex> lock(model->mutex);
        const Model& m = *model->model;
        if (!m.has_encoder) throw Refused("this model has no encoder");
        const int64_t starts[2] = {0, n};
        const std::vector<Span> source = read_texts({1, ids, starts}, m.source_vocab, 1, m.room(true));
        const std::vector<float> x = encode_source(m, source[0]);
        if (int64_t(x.size()) > size) throw Refused("the output has too little room");
        std::copy(x.begin(), x.end(), out);
        return int64_t(x.size());
    }, -1);
}

void regard_free_found(regard_found* found) { delete static_cast<Found*>(found); }

}  // extern "C"
