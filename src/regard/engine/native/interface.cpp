// The C interface: checks all arguments, and turns exceptions into messages.
#include "regard_engine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#include "batch.h"
#include "search.h"

struct regard_model {
    std::unique_ptr<regard::Model> model;
    std::unique_ptr<regard::Team> team;
    std::unique_ptr<std::mutex> mutex = std::make_unique<std::mutex>();  // one call at a time
    regard::Sharing sharing;
};

struct regard_batch {
    regard_model* model;
    regard::Batch batch;
};

namespace regard {

#define REGARD_TABLE(isa) namespace isa { extern const Kernels table; }
#if defined(__x86_64__)
REGARD_TABLE(vnni)
REGARD_TABLE(avx512)
REGARD_TABLE(avx2)
#elif defined(__aarch64__)
REGARD_TABLE(neon)
#endif
REGARD_TABLE(portable)

namespace {

#if defined(__x86_64__)
// Reads CPUID itself: __builtin_cpu_supports does not link into a shared library with every compiler.
struct Processor {
    bool avx2 = false, avx512 = false, vnni = false;
    Processor() {
        unsigned a, b, c, d, low, high;
        if (!__get_cpuid(1, &a, &b, &c, &d)) return;
        const bool fma = c >> 12 & 1, saves = c >> 27 & 1;  // OSXSAVE: the system saves wide registers
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
#elif defined(__aarch64__) && defined(__linux__)
bool has_neon() { return getauxval(AT_HWCAP) >> 20 & 1; }  // HWCAP_ASIMDDP: the dot product of signed bytes
#elif defined(__aarch64__)
bool has_neon() { return true; }  // every Mac with an Apple processor
#endif
bool has_portable() { return true; }

const Choice CHOICES[] = {
#if defined(__x86_64__)
    {&vnni::table, has_vnni}, {&avx512::table, has_avx512}, {&avx2::table, has_avx2},
#elif defined(__aarch64__)
    {&neon::table, has_neon},
#endif
    {&portable::table, has_portable},
};

struct Found : regard_found {
    std::vector<int64_t> outputs_, lengths_;
    std::vector<int32_t> tokens_;
    std::vector<double> log_probs_, scores_;
    std::vector<int64_t> sequences_;
    std::vector<int32_t> written_;
    void add(const std::vector<Hypothesis>& each) {
        outputs_.push_back(int64_t(each.size()));
        for (const Hypothesis& h : each) {
            lengths_.push_back(int64_t(h.tokens.size()));
            tokens_.insert(tokens_.end(), h.tokens.begin(), h.tokens.end());
            log_probs_.push_back(h.log_prob), scores_.push_back(h.score);
        }
    }
    void seal() {
        count = int64_t(outputs_.size());
        outputs = outputs_.data(), lengths = lengths_.data(), tokens = tokens_.data();
        log_probs = log_probs_.data(), scores = scores_.data();
        sequences = sequences_.data(), written = written_.data();
    }
};

// Calls f; an exception becomes a message and the value `failed`.
template <class F>
auto guarded(char* error, int64_t size, F f, decltype(f()) failed) -> decltype(f()) {
    const auto say = [&](const char* said) {  // allocates nothing: there may be no memory left
        if (!error || size <= 0) return;
        const size_t n = std::min(std::strlen(said), size_t(size - 1));
        std::memcpy(error, said, n);
        error[n] = 0;
    };
    try {
        return f();
    } catch (const std::bad_alloc&) {
        say("out of memory");
    } catch (const std::exception& other) {  // `Refused` among them
        say(other.what());
    } catch (...) {
        say("unexpected error");
    }
    return failed;
}

constexpr int64_t MAX_TOKENS = INT64_C(1) << 31, MAX_LIMIT = 1 << 24, MAX_BEAM = 1024;

// Checks that every token is in the vocabulary, and that every row has from `least` to `room` tokens (-1: any number).
std::vector<Span> read_texts(const regard_texts& texts, int64_t vocab, int64_t least, int64_t room) {
    std::vector<Span> out;
    if (texts.count < 0 || texts.count > MAX_TOKENS) throw Refused("the number of texts is out of range");
    if (texts.count && !texts.starts) throw Refused("the texts are missing");
    for (int64_t i = 0; i < texts.count; i++) {
        const int64_t from = texts.starts[i], to = texts.starts[i + 1];
        if (from < 0 || to < from || to > MAX_TOKENS) throw Refused("the texts have no valid starts");
        if (to > from && !texts.ids) throw Refused("the texts are missing");
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
    within(given.top_p, std::numeric_limits<double>::min(), 1, "top_p");
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

const Model& check_writes(const regard_model* model) {
    if (!model) throw Refused("arguments are missing");
    if (!model->model->has_decoder) throw Refused("this model has no decoder, and writes no text");
    return *model->model;
}

Request read_request(const regard_search& given, const int32_t* banned, int64_t n_banned, const Model& model) {
    Request out{read_search(given, model), std::vector<uint8_t>(size_t(model.vocab), 0)};
    if (n_banned < 0 || (n_banned && !banned)) throw Refused("arguments are missing");
    for (int64_t i = 0; i < n_banned; i++) {
        if (banned[i] < 0 || banned[i] >= model.vocab) throw Refused("a banned token is outside the vocabulary");
        out.banned[size_t(banned[i])] = 1;
    }
    return out;
}

void set_limit(Input& input, int64_t limit, int64_t number, const Model& model) {
    const int64_t room = model.room(false), read = model.has_encoder ? 0 : input.source.n - 1;
    if (limit < 1 || limit > MAX_LIMIT || (room >= 0 && limit + read > room))
        throw Refused("the limit of an output is out of range");
    input.limit = limit, input.number = uint64_t(number);
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

regard_model* regard_load(const double* plan, int64_t words, const void* weights, int64_t bytes, int mapped, int precision,
                          int threads, const char* kernels, char* error, int64_t error_size) {
    return guarded(error, error_size, [&]() -> regard_model* {
        if (!plan || words < 0 || !weights || bytes < 0) throw Refused("there is no plan or no weights");
        if (precision < 0 || precision > 2) throw Refused("there is no such precision");
        const Kernels* chosen = choose_kernels(kernels);
        if (!chosen) throw Refused("these kernels are unknown, or not for this processor");
        auto out = std::make_unique<regard_model>();
        out->model = read_model(plan, words, static_cast<const unsigned char*>(weights), bytes, mapped != 0, Precision(precision),
                                chosen);
        out->team = std::make_unique<Team>(std::clamp(threads, 1, 256));
        return out.release();
    }, nullptr);
}

int regard_has_nan(const void* data, int64_t bytes, int64_t start, int64_t count, int dtype) {
    if (!data || dtype < 0 || dtype > int(Dtype::bfloat16) || start < 0 || start > bytes) return 0;
    return has_nan(static_cast<const unsigned char*>(data) + start, std::min(count, (bytes - start) / size_of(Dtype(dtype))),
                   Dtype(dtype));
}
void regard_free_model(regard_model* model) { delete model; }
void regard_restart(regard_model* model) {
    static_cast<void>(model->mutex.release());  // a thread that is not in this process may hold it
    model->mutex = std::make_unique<std::mutex>();
    model->team->restart();
}
int64_t regard_model_bytes(const regard_model* model) { return model->model->bytes; }
const char* regard_model_kernels(const regard_model* model) { return model->model->kernels->name; }

regard_found* regard_decode(regard_model* model, const regard_texts* sources, const regard_texts* prefixes,
                            const int64_t* limits, const int64_t* numbers, const int32_t* banned, int64_t n_banned,
                            const regard_search* search, const regard_stop* stop, char* error, int64_t error_size) {
    return guarded(error, error_size, [&]() -> regard_found* {
        const Model& m = check_writes(model);
        const Stop watched(stop ? stop->flags : nullptr, stop ? stop->count : 0);
        if (!limits || !numbers || !search) throw Refused("arguments are missing");
        std::lock_guard<std::mutex> lock(*model->mutex);
        const Request request = read_request(*search, banned, n_banned, m);
        std::vector<Input> inputs = read_inputs(m, sources, prefixes, 0);
        for (size_t i = 0; i < inputs.size(); i++) set_limit(inputs[i], limits[i], numbers[i], m);
        auto found = std::make_unique<Found>();
        for (const auto& each : regard::search(m, *model->team, inputs, request, model->sharing, watched)) found->add(each);
        found->seal();
        return found.release();
    }, nullptr);
}

int regard_set_shortlist(regard_model* model, const regard_texts* candidates, const regard_texts* always, char* error,
                         int64_t error_size) {
    return guarded(error, error_size, [&]() -> int {
        const Model& m = check_writes(model);
        if (!candidates || !always) throw Refused("arguments are missing");
        Shortlist list;
        const std::vector<Span> rows = read_texts(*candidates, m.vocab, 0, -1), every = read_texts(*always, m.vocab, 0, -1);
        if (!rows.empty()) {
            if (!m.has_encoder) throw Refused("a shortlist needs a model that reads a source");
            if (int64_t(rows.size()) != m.source_vocab) throw Refused("a shortlist should have one row per source token");
            list.starts.push_back(0);
            for (const Span& row : rows) {
                list.ids.insert(list.ids.end(), row.data, row.data + row.n);
                list.starts.push_back(int64_t(list.ids.size()));
            }
            for (const Span& each : every) list.always.insert(list.always.end(), each.data, each.data + each.n);
        }
        std::lock_guard<std::mutex> lock(*model->mutex);
        model->model->shortlist = std::move(list);
        return 1;
    }, 0);
}

regard_batch* regard_open_batch(regard_model* model, char* error, int64_t error_size) {
    return guarded(error, error_size, [&]() -> regard_batch* {
        check_writes(model);
        return new regard_batch{model, Batch(*model->model, *model->team)};
    }, nullptr);
}

int64_t regard_add(regard_batch* batch, const regard_texts* source, const regard_texts* prefix, int64_t limit, int64_t number,
                   const int32_t* banned, int64_t n_banned, const regard_search* search, char* error, int64_t error_size) {
    return guarded(error, error_size, [&]() -> int64_t {
        if (!batch || !search) throw Refused("arguments are missing");
        const Model& m = *batch->model->model;
        Request request = read_request(*search, banned, n_banned, m);
        std::vector<Input> inputs = read_inputs(m, source, prefix, 0);
        if (inputs.size() != 1) throw Refused("one sequence is added at a time");
        set_limit(inputs[0], limit, number, m);
        return batch->batch.add(inputs[0], std::move(request));
    }, -1);
}

int regard_remove(regard_batch* batch, int64_t sequence) { return batch && batch->batch.remove(sequence); }
int64_t regard_batch_size(regard_batch* batch) { return batch ? batch->batch.size() : 0; }
int64_t regard_batch_tokens(regard_batch* batch) { return batch ? batch->batch.tokens() : 0; }
int64_t regard_batch_bytes(regard_batch* batch) { return batch ? batch->batch.bytes() : 0; }
void regard_close_batch(regard_batch* batch) { delete batch; }

regard_found* regard_step(regard_batch* batch, const regard_stop* stop, char* error, int64_t error_size) {
    return guarded(error, error_size, [&]() -> regard_found* {
        if (!batch) throw Refused("arguments are missing");
        const Stop watched(stop ? stop->flags : nullptr, stop ? stop->count : 0);
        std::lock_guard<std::mutex> lock(*batch->model->mutex);
        auto found = std::make_unique<Found>();
        for (const Change& change : batch->batch.step(watched)) {
            found->sequences_.push_back(change.sequence), found->written_.push_back(change.written);
            if (change.over) found->add(change.out);
            else found->outputs_.push_back(-1);
        }
        found->seal();
        return found.release();
    }, nullptr);
}

regard_found* regard_score(regard_model* model, const regard_texts* sources, const regard_texts* targets, int64_t bos,
                           const regard_stop* stop, char* error, int64_t error_size) {
    return guarded(error, error_size, [&]() -> regard_found* {
        const Model& m = check_writes(model);
        const Stop watched(stop ? stop->flags : nullptr, stop ? stop->count : 0);
        std::lock_guard<std::mutex> lock(*model->mutex);
        if (bos < 0 || bos >= m.vocab) throw Refused("the start mark is outside the vocabulary");
        const std::vector<Input> inputs = read_inputs(m, sources, targets, 1);
        const int64_t room = m.room(false);
        for (const Input& input : inputs)
            if (!input.prefix.n || (room >= 0 && (m.has_encoder ? 0 : input.source.n - 1) + input.prefix.n > room))
                throw Refused("a target is missing, or longer than the model has positions");
        auto found = std::make_unique<Found>();
        for (const auto& each : score_targets(m, inputs, int32_t(bos), watched)) {
            found->outputs_.push_back(1), found->lengths_.push_back(int64_t(each.size()));
            found->log_probs_.insert(found->log_probs_.end(), each.begin(), each.end());
        }
        found->seal();
        return found.release();
    }, nullptr);
}

int64_t regard_encode(regard_model* model, const regard_texts* sources, float* out, int64_t size, const regard_stop* stop,
                      char* error, int64_t error_size) {
    return guarded(error, error_size, [&]() -> int64_t {
        if (!model || !sources || !out) throw Refused("arguments are missing");
        const Stop watched(stop ? stop->flags : nullptr, stop ? stop->count : 0);
        std::lock_guard<std::mutex> lock(*model->mutex);
        const Model& m = *model->model;
        if (!m.has_encoder) throw Refused("this model has no encoder");
        const std::vector<Span> read = read_texts(*sources, m.source_vocab, 1, m.room(true));
        int64_t tokens = 0;
        for (const Span& source : read) tokens += source.n;
        if (size < 0 || tokens > size / m.width) throw Refused("the output has too little room");
        encode_sources(m, *model->team, read, out, watched);
        return tokens * m.width;
    }, -1);
}

void regard_free_found(regard_found* found) { delete static_cast<Found*>(found); }

}  // extern "C"
