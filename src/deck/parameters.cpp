#include "deck/parameters.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace metro {

namespace {

using TextField = std::string& (*)(Deck&);
using TextListField = std::vector<std::string>& (*)(Deck&);
using IntegerField = std::int64_t& (*)(Deck&);
using ShardField = Shard& (*)(Deck&);
using NumberField = double& (*)(Deck&);

constexpr std::int64_t kib = std::int64_t{1} << 10;
constexpr std::int64_t mib = std::int64_t{1} << 20;
constexpr std::int64_t tib = std::int64_t{1} << 40;

// Upper bounds are far above any real use; they keep products of a few of them within 64 bits.
constexpr std::int64_t most_tokens = std::int64_t{1} << 24;
constexpr std::int64_t most_slots = std::int64_t{1} << 16;

Parameter required_text(const char* name, TextField field, const char* meaning) {
  return {name, TextRule{field, "", {}, "", false}, true, "", meaning};
}

Parameter required_text_list(const char* name, TextListField field, const char* meaning) {
  return {name, TextListRule{field, {}}, true, "", meaning};
}

Parameter optional_text(const char* name, TextField field, const char* meaning) {
  return {name, TextRule{field, "", {}, "", true}, false, "", meaning};
}

Parameter shard(const char* name, ShardField field, const char* meaning) {
  return {name, ShardRule{field, {}}, false, "", meaning};
}

Parameter date(const char* name, TextField field, const char* meaning) {
  return {name, DateRule{field, ""}, false, "", meaning};
}

Parameter one_of(const char* name, TextField field, std::vector<std::string> choices, const char* default_value,
                 const char* file_ending, const char* meaning) {
  return {name, TextRule{field, default_value, std::move(choices), file_ending, false}, false, "", meaning};
}

Parameter integer(const char* name, IntegerField field, IntegerRule rule, const char* unit, const char* meaning) {
  rule.field = field;
  return {name, rule, false, unit, meaning};
}

Parameter number(const char* name, NumberField field, NumberRule rule, const char* unit, const char* meaning) {
  rule.field = field;
  return {name, rule, false, unit, meaning};
}

Parameter bytes(const char* name, IntegerField field, BytesRule rule, const char* meaning) {
  rule.field = field;
  return {name, rule, false, "bytes", meaning};
}

// The name of a key and its place in the Deck, from one spelling.
#define METRO_KEY(path)             \
#path, [](Deck & deck) -> auto& { \
    return deck.path;               \
  }

std::vector<Parameter> make_parameters() {
  const std::vector<std::string> policies = {"exact",       "metro",      "metro-scarce", "even",  "vllm-random",
                                             "vllm-modulo", "vllm-knuth", "static",       "local", "makespan"};
  const IntegerRule seed = {.default_value = 0, .minimum = 0, .maximum = std::int64_t{1} << 62};
  const auto cost_ns = [](std::int64_t value) {
    return IntegerRule{.default_value = value, .minimum = 0, .maximum = 1'000'000'000};
  };
  return {
      required_text(METRO_KEY(model.checkpoint), "checkpoint file written by `metro convert`"),
      integer(METRO_KEY(model.max_context), {.default_value = 0, .minimum = 0, .maximum = most_tokens}, "tokens",
              "longest prompt and completion together; 0: the model's own limit"),
      one_of(METRO_KEY(model.sharing), {"auto", "node", "rank"}, "auto", "",
             "how often what every rank needs (attention, embedding, head) lies in memory; node: once per node, loaded "
             "by its ranks together; rank: once per rank, in huge pages of its own NUMA domain, which decodes faster; "
             "auto: per rank, unless the copies of a node take more than a quarter of its free memory"),

      required_text_list(
          METRO_KEY(requests.input),
          "files of requests, one JSON object per line, plain or compressed by gzip or zstd; a path with "
          "*, ? or [...] is a pattern, \"-\" is the standard input of rank 0"),
      integer(METRO_KEY(requests.max_tokens), {.default_value = 256, .minimum = 1, .maximum = most_tokens}, "tokens",
              "longest completion of a request that does not say"),
      optional_text(METRO_KEY(requests.arrivals),
                    "trace of arrival times, a row per request: CSV with a column TIMESTAMP, or JSON lines with "
                    "timestamp in ms; empty: requests are there at once, or at the arrival_s of their lines"),
      number(METRO_KEY(requests.arrival_scale),
             {.default_value = 1.0, .minimum = 0.0, .maximum = 1e6, .minimum_allowed = false}, "",
             "factor on all arrival times; 0.5: twice as fast"),
      number(METRO_KEY(requests.temperature), {.default_value = 0.0, .minimum = 0.0, .maximum = 100.0}, "",
             "temperature of a request that does not say; 0: always the likeliest token"),
      date(METRO_KEY(requests.date),
           "what a chat template that asks for the date is told; empty: chat lines whose template asks are refused, since "
           "completions must not depend on the day of the run"),
      shard(
          METRO_KEY(requests.shard),
          "i/n: part i, counted from 0, of n parts of the input; the run answers every n-th line, from line i + 1 on, "
          "under the name and number that it has in the whole input"),

      required_text(METRO_KEY(output.directory),
                    "folder for completions, errors, metrics and the resolved deck; made if missing"),

      number(METRO_KEY(experts.replication), {.default_value = 1.0, .minimum = 1.0, .maximum = 65536.0}, "",
             "replicas per expert, on average; slots per rank = ceil(experts * replication / ranks)"),
      integer(METRO_KEY(experts.slots_per_rank), {.default_value = 0, .minimum = 0, .maximum = most_slots}, "",
              "replicas that a rank holds in each layer; 0: from experts.replication; else that must stay at 1.0"),
      one_of(METRO_KEY(experts.placement), {"trivial", "eplb", "activation-aware"}, "trivial", ".json",
             "which expert sits in which slot; trivial: slot s holds expert s mod experts; eplb: balanced by load; "
             "activation-aware: fewest experts in use on the busiest rank, by a trace"),
      optional_text(METRO_KEY(experts.loads),
                    "JSON file of tokens per layer and expert, for experts.placement = \"eplb\"; empty: all equal"),
      optional_text(METRO_KEY(experts.trace), "routing trace (.h5) for experts.placement = \"activation-aware\""),
      integer(METRO_KEY(experts.rebalance_steps),
              {.default_value = 0, .minimum = 0, .maximum = std::numeric_limits<std::int32_t>::max()}, "steps",
              "after so many steps experts are placed anew, by the tokens that they received meanwhile; 0: never"),
      one_of(METRO_KEY(experts.rebalance_source), {"auto", "peers", "checkpoint"}, "auto", "",
             "where a rank gets the weights of an expert that comes to it; auto: what is faster when the job starts"),

      one_of(METRO_KEY(routing.decode), policies, "exact", "",
             "which replica serves a token in decode steps; exact: fewest replicas in use on the busiest rank; metro: "
             "the same, approximately, in expert order; metro-scarce: experts with fewest hosts first; even: equal "
             "tokens per replica; vllm-random, vllm-modulo, vllm-knuth: as three generations of vLLM; static, local: a "
             "replica on the token's own rank or node if there is one; makespan: least time of the slowest rank by the "
             "costs below"),
      one_of(
          METRO_KEY(routing.prefill), policies, "even", "",
          "which replica serves a token in prefill steps: the same policies; exact, metro, metro-scarce and makespan "
          "make ranks exchange their tokens per expert first"),
      one_of(METRO_KEY(routing.ties), {"first", "near"}, "first", "",
             "exact: which of its optimal answers on several nodes; first: the first found; near: one with the fewest "
             "tokens served on another node, which takes tens to hundreds of microseconds per layer more"),
      integer(METRO_KEY(routing.seed), seed, "", "seed of vllm-random; completions do not depend on it"),
      integer(METRO_KEY(routing.read_fixed_ns), cost_ns(0), "ns",
              "makespan: time a rank needs to read its experts = read_fixed_ns + read_per_expert_ns * experts in use"),
      integer(METRO_KEY(routing.read_per_expert_ns), cost_ns(14780), "ns",
              "makespan: see read_fixed_ns; this and compute_per_row_ns are by default as published for DeepSeek-V3 in "
              "fp8 (TEMPO, arXiv 2608.13057)"),
      integer(METRO_KEY(routing.compute_fixed_ns), cost_ns(0), "ns",
              "makespan: time a rank needs to compute = compute_fixed_ns + compute_per_row_ns * tokens; reading and "
              "computing overlap, the longer one counts"),
      integer(METRO_KEY(routing.compute_per_row_ns), cost_ns(94), "ns", "makespan: see compute_fixed_ns"),

      one_of(
          METRO_KEY(decode.exchange), {"auto", "allgather", "ids_then_alltoall"}, "auto", "",
          "how token rows of decode steps reach the experts; allgather: all to all ranks, in one collective; "
          "ids_then_alltoall: the ids of their experts to all ranks, then each row to the ranks that need it: two "
          "collectives, fewer bytes; auto: for every step what is faster with so many rows, as measured when the job "
          "starts"),
      one_of(METRO_KEY(decode.gate), {"local", "gathered"}, "local", "",
             "where the router chooses experts in decode steps; local: for the rows of each rank on that rank; "
             "gathered: for the rows of all ranks on every rank, after an allgather"),

      integer(METRO_KEY(batch.max_sequences_per_rank), {.default_value = 32, .minimum = 1, .maximum = 65536},
              "sequences", "most sequences that a rank decodes at a time"),
      integer(METRO_KEY(batch.prefill_chunk), {.default_value = 512, .minimum = 1, .maximum = mib}, "tokens",
              "most prompt tokens that a rank computes in one step"),
      number(METRO_KEY(batch.prefill_min), {.default_value = 0.5, .minimum = 0.0, .maximum = 1.0}, "",
             "share of ranks * batch.prefill_chunk that must wait before decoding pauses for a prefill step"),

      integer(METRO_KEY(kv.block_tokens), {.default_value = 16, .minimum = 1, .maximum = 4096}, "tokens",
              "positions in one block of the key-value cache"),
      bytes(METRO_KEY(kv.memory), {.default_value = 0, .minimum = 0, .maximum = 256 * tib},
            "key-value cache of a rank; 0: as much as the batch can use, within the memory that is free"),
      one_of(METRO_KEY(kv.share_prefixes), {"on", "off"}, "on", "",
             "whether prompts that begin with the same tokens share the blocks of that beginning on a rank, so that it "
             "is computed once; of no effect on completions"),

      bytes(METRO_KEY(exchange.memory), {.default_value = 256 * mib, .minimum = 4 * kib, .maximum = tib},
            "expert rows that a rank holds at a time; what exceeds it goes in further rounds"),
      one_of(
          METRO_KEY(exchange.levels), {"auto", "one", "two"}, "auto", "",
          "how rows get to other nodes; one: from each rank to each reader; two: those of a node meet in its memory, "
          "and one message takes them to the other node, to be read by all its ranks; auto: what is faster when the "
          "job starts. On one node, and with one rank on each, always one"),
      one_of(
          METRO_KEY(exchange.transport), {"auto", "mpi", "nccl"}, "auto", "",
          "how rows in the memory of GPUs get to other ranks; nccl: from GPU to GPU; mpi: from GPU to GPU if the MPI "
          "is CUDA-aware, else through the memory of the hosts; auto: nccl, unless ranks share a GPU. On CPUs always "
          "mpi"),

      one_of(METRO_KEY(device.share), {"off", "on"}, "off", "",
             "whether several ranks of a node may compute on the same GPU; off: more ranks than GPUs are an error. On "
             "CPUs without meaning"),
      one_of(
          METRO_KEY(device.decode), {"auto", "device", "host"}, "auto", "",
          "who routes a decode step and lists the work of its experts; device: the GPU, without a copy to the host in "
          "between, an error where it cannot; host; auto: the GPU where it can. On CPUs always host"),
      one_of(METRO_KEY(device.graphs), {"on", "off"}, "on", "",
             "whether the kernels of a decode step between two exchanges are recorded once and launched as one CUDA "
             "graph, where the GPU routes; off: one by one. On CPUs without meaning"),
      one_of(METRO_KEY(device.messages), {"exact", "fixed"}, "exact", "",
             "how results return to their ranks where the GPU routes; exact: as many rows as there are, which the host "
             "learns once per layer; fixed: room for all that could be, so that the host waits for nothing, for "
             "batches that are small enough. On CPUs without meaning"),

      one_of(
          METRO_KEY(kernels.reproducible), {"on", "off"}, "on", "",
          "whether completions are the same bytes on every machine and in every batch; off: GPUs compute the experts "
          "of prefill steps by cuBLAS, from activations rounded to bf16, and completions may differ from run to run. "
          "On CPUs off is an error"),

      optional_text(METRO_KEY(trace.record),
                    "file for a routing trace of the run: the experts of every token in every layer; empty: none"),

      integer(METRO_KEY(run.threads), {.default_value = 1, .minimum = 1, .maximum = 1024}, "", "threads of a rank"),
      one_of(METRO_KEY(run.simd), {"auto", "avx512", "avx2", "scalar"}, "auto", "",
             "vector instructions of the kernels on a CPU; auto: the best that all ranks have. Results are the same"),
      number(METRO_KEY(run.timeout_s),
             {.default_value = 300.0, .minimum = 0.0, .maximum = 604800.0, .minimum_allowed = false}, "seconds",
             "longest wait for other ranks, or for the own GPU, before the job is ended as failed"),
      number(METRO_KEY(run.checkpoint_s), {.default_value = 300.0, .minimum = 0.0, .maximum = 604800.0}, "seconds",
             "time after which the tokens of unfinished requests are saved again, so that a run that is killed goes on "
             "from there; 0: only when it is stopped by a signal"),
      one_of(
          METRO_KEY(run.core_dumps), {"off", "on"}, "off", "",
          "what a rank leaves when it crashes; off: no core dump, which would hold prompts, completions and weights; "
          "on: what the limits of the job allow"),
  };
}

#undef METRO_KEY

}  // namespace

const std::vector<Parameter>& parameters() {
  static const std::vector<Parameter> table = make_parameters();
  return table;
}

const Parameter* find_parameter(std::string_view name) {
  const auto found = std::ranges::find(parameters(), name, &Parameter::name);
  return found == parameters().end() ? nullptr : &*found;
}

}  // namespace metro
