// Every kernel says which of its arrays is not memory of kernels.
#include "base/error.hpp"
#include "kernels/attention.hpp"
#include "kernels/buffer.hpp"
#include "kernels/decode_lists.hpp"
#include "kernels/experts.hpp"
#include "kernels/gate.hpp"
#include "kernels/latent_attention.hpp"
#include "kernels/linear.hpp"
#include "kernels/listed_experts.hpp"
#include "kernels/norm.hpp"
#include "kernels/routing.hpp"
#include "kernels/sampling.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <functional>
#include <string>
#include <vector>

namespace {

struct Case {
  std::string kernel, argument;
  std::function<void()> call;
};

void check(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    CAPTURE(one.kernel, one.argument);
    CHECK_THROWS_WITH(one.call(), Catch::Contains(one.kernel + ": " + one.argument + " is not memory of kernels"));
  }
}

template <class T>
struct Memory {
  Memory() : device("memory", 64) {}
  std::array<T, 64> of_host{};
  metro::Buffer<T> device;
  T* host() { return of_host.data(); }
  T* kernels() const { return device.data(); }
};

}  // namespace

TEST_CASE("linear layers and norms name the array of the host that they were given") {
  Memory<float> f;
  Memory<std::int32_t> ids;
  Memory<std::int64_t> offsets;
  const metro::PackedMatrix good{f.kernels(), metro::StoredType::f32, 1, 1};
  const metro::PackedMatrix bad{f.host(), metro::StoredType::f32, 1, 1};
  float* const k = f.kernels();
  float* const h = f.host();

  check(
      {{"linear", "x", [&] { metro::linear(h, 1, good, k); }},
       {"linear", "w", [&] { metro::linear(k, 1, bad, k); }},
       {"linear", "y", [&] { metro::linear(k, 1, good, h); }},
       {"embed", "table", [&] { metro::embed(bad, ids.kernels(), 1, k); }},
       {"embed", "ids", [&] { metro::embed(good, ids.host(), 1, k); }},
       {"embed", "y", [&] { metro::embed(good, ids.kernels(), 1, h); }},
       {"add", "x", [&] { metro::add(h, 1, k); }},
       {"add", "y", [&] { metro::add(k, 1, h); }},
       {"copy_rows", "from", [&] { metro::copy_rows(h, {.stride = 1}, k, {.stride = 1}, 1, 1); }},
       {"copy_rows", "from_places", [&] { metro::copy_rows(k, {.offsets = offsets.host()}, k, {.stride = 1}, 1, 1); }},
       {"copy_rows", "to", [&] { metro::copy_rows(k, {.stride = 1}, h, {.stride = 1}, 1, 1); }},
       {"copy_rows", "to_places", [&] { metro::copy_rows(k, {.stride = 1}, k, {.offsets = offsets.host()}, 1, 1); }},
       {"rms_norm", "x", [&] { metro::rms_norm(h, 1, 1, k, 0.0F, k); }},
       {"rms_norm", "weight", [&] { metro::rms_norm(k, 1, 1, h, 0.0F, k); }},
       {"rms_norm", "y", [&] { metro::rms_norm(k, 1, 1, k, 0.0F, h); }},
       {"layer_norm", "x", [&] { metro::layer_norm(h, 1, 1, k, k, 0.0F, k); }},
       {"layer_norm", "weight", [&] { metro::layer_norm(k, 1, 1, h, k, 0.0F, k); }},
       {"layer_norm", "bias", [&] { metro::layer_norm(k, 1, 1, k, h, 0.0F, k); }},
       {"layer_norm", "y", [&] { metro::layer_norm(k, 1, 1, k, k, 0.0F, h); }}});
}

TEST_CASE("sampling kernels name the array of the host that they were given") {
  Memory<float> f;
  Memory<std::int32_t> ids;
  Memory<std::uint64_t> codes;
  float* const k = f.kernels();
  float* const h = f.host();

  check({{"argmax", "logits", [&] { metro::argmax(h, 1, 1, ids.kernels()); }},
         {"argmax", "tokens", [&] { metro::argmax(k, 1, 1, ids.host()); }},
         {"log_softmax", "logits", [&] { metro::log_softmax(h, 1, 1, k); }},
         {"log_softmax", "logprobs", [&] { metro::log_softmax(k, 1, 1, h); }},
         {"top_logprobs", "logprobs", [&] { metro::top_logprobs(h, 1, 1, 1, ids.kernels(), k); }},
         {"top_logprobs", "ids", [&] { metro::top_logprobs(k, 1, 1, 1, ids.host(), k); }},
         {"top_logprobs", "values", [&] { metro::top_logprobs(k, 1, 1, 1, ids.kernels(), h); }},
         {"pick", "values", [&] { metro::pick(h, 1, 1, ids.kernels(), k); }},
         {"pick", "ids", [&] { metro::pick(k, 1, 1, ids.host(), k); }},
         {"pick", "picked", [&] { metro::pick(k, 1, 1, ids.kernels(), h); }},
         {"sampling_weights", "logits", [&] { metro::sampling_weights(h, 1, 1, 1.0, k); }},
         {"sampling_weights", "weights", [&] { metro::sampling_weights(k, 1, 1, 1.0, h); }},
         {"order_codes", "values", [&] { metro::order_codes(h, 1, 1, codes.kernels()); }},
         {"order_codes", "codes", [&] { metro::order_codes(k, 1, 1, codes.host()); }}});
}

TEST_CASE("attention kernels name the array of the host that they were given") {
  Memory<float> f;
  Memory<std::int32_t> i;
  float* const k = f.kernels();
  float* const h = f.host();
  const metro::KvLayer cache{k, k, 1, 1, 2};
  const metro::KvLayer keys{h, k, 1, 1, 2};
  const metro::KvLayer values{k, h, 1, 1, 2};
  const metro::AttentionRows rows{1, i.kernels(), i.kernels(), i.kernels(), 1};
  const metro::AttentionRows positions{1, i.host(), i.kernels(), i.kernels(), 1};
  const metro::AttentionRows sequences{1, i.kernels(), i.host(), i.kernels(), 1};
  const metro::AttentionRows tables{1, i.kernels(), i.kernels(), i.host(), 1};

  check({{"rope", "x",
          [&] {
            metro::rope(h, i.kernels(), 1, {1, 2}, k, k);
          }},
         {"rope", "table_rows",
          [&] {
            metro::rope(k, i.host(), 1, {1, 2}, k, k);
          }},
         {"rope", "cos",
          [&] {
            metro::rope(k, i.kernels(), 1, {1, 2}, h, k);
          }},
         {"rope", "sin",
          [&] {
            metro::rope(k, i.kernels(), 1, {1, 2}, k, h);
          }},
         {"write_kv", "k", [&] { metro::write_kv(h, k, rows, cache); }},
         {"write_kv", "v", [&] { metro::write_kv(k, h, rows, cache); }},
         {"write_kv", "keys", [&] { metro::write_kv(k, k, rows, keys); }},
         {"write_kv", "values", [&] { metro::write_kv(k, k, rows, values); }},
         {"write_kv", "positions", [&] { metro::write_kv(k, k, positions, cache); }},
         {"write_kv", "sequences", [&] { metro::write_kv(k, k, sequences, cache); }},
         {"write_kv", "block_tables", [&] { metro::write_kv(k, k, tables, cache); }},
         {"attention", "q", [&] { metro::attention(h, rows, cache, 1, {}, 1, k, k); }},
         {"attention", "positions", [&] { metro::attention(k, positions, cache, 1, {}, 1, k, k); }},
         {"attention", "sinks", [&] { metro::attention(k, rows, cache, 1, {.sinks = h}, 1, k, k); }},
         {"attention", "scratch", [&] { metro::attention(k, rows, cache, 1, {}, 1, h, k); }},
         {"attention", "out", [&] { metro::attention(k, rows, cache, 1, {}, 1, k, h); }}});
}

TEST_CASE("kernels of latent attention name the array of the host that they were given") {
  Memory<float> f;
  Memory<std::int32_t> i;
  Memory<metro::QueryTile> t;
  float* const k = f.kernels();
  float* const h = f.host();
  const metro::LatentCache cache{k, 1, 1, 2};
  const metro::LatentCache tokens{h, 1, 1, 2};
  const metro::AttentionRows rows{1, i.kernels(), i.kernels(), i.kernels(), 1};
  const metro::AttentionRows positions{1, i.host(), i.kernels(), i.kernels(), 1};
  const metro::AttentionRows tables{1, i.kernels(), i.kernels(), i.host(), 1};
  const metro::LatentQueries good{{k, 3, 3}, {k, 3, 3}, 1};
  const metro::LatentQueries plain{{h, 3, 3}, {k, 3, 3}, 1};
  const metro::LatentQueries rotated{{k, 3, 3}, {h, 3, 3}, 1};
  const metro::ExpandedKeys expanded{k, k, 1, 1, 1, 1};
  const metro::QueryTiles tiles{t.kernels(), 1, 0};
  const metro::HeadMatrices matrices{k, metro::StoredType::f32, 1, 1, 1};
  const auto absorbed = [&](const metro::LatentQueries& queries, const metro::AttentionRows& of, float* scratch,
                            float* out) {
    metro::absorbed_attention(queries, of, cache, {scratch, 1}, out);
  };
  const auto attend = [&](const metro::QueryTiles& of, const metro::ExpandedKeys& keys) {
    metro::expanded_attention(good, of, rows, cache, keys, {k, 1}, k, 1);
  };

  check({{"linear_of_heads", "x",
          [&] {
            metro::linear_of_heads({h, 1, 1}, 1, matrices, k);
          }},
         {"linear_of_heads", "w",
          [&] {
            metro::linear_of_heads({k, 1, 1}, 1, {h, metro::StoredType::f32, 1, 1, 1}, k);
          }},
         {"linear_of_heads", "y",
          [&] {
            metro::linear_of_heads({k, 1, 1}, 1, matrices, h);
          }},
         {"write_latents", "latents", [&] { metro::write_latents(h, k, rows, cache); }},
         {"write_latents", "rotated", [&] { metro::write_latents(k, h, rows, cache); }},
         {"write_latents", "tokens", [&] { metro::write_latents(k, k, rows, tokens); }},
         {"write_latents", "positions", [&] { metro::write_latents(k, k, positions, cache); }},
         {"read_latents", "tokens", [&] { metro::read_latents(tokens, rows, 0, 0, 1, k); }},
         {"read_latents", "block_tables", [&] { metro::read_latents(cache, tables, 0, 0, 1, k); }},
         {"read_latents", "latents", [&] { metro::read_latents(cache, rows, 0, 0, 1, h); }},
         {"absorbed_attention", "plain", [&] { absorbed(plain, rows, k, k); }},
         {"absorbed_attention", "rotated", [&] { absorbed(rotated, rows, k, k); }},
         {"absorbed_attention", "positions", [&] { absorbed(good, positions, k, k); }},
         {"absorbed_attention", "scratch", [&] { absorbed(good, rows, h, k); }},
         {"absorbed_attention", "out", [&] { absorbed(good, rows, k, h); }},
         {"expanded_attention", "tiles",
          [&] {
            attend({t.host(), 1, 0}, expanded);
          }},
         {"expanded_attention", "keys",
          [&] {
            attend(tiles, {h, k, 1, 1, 1, 1});
          }},
         {"expanded_attention", "values", [&] {
            attend(tiles, {k, h, 1, 1, 1, 1});
          }}});
}

TEST_CASE("kernels of experts name the array of the host that they were given") {
  Memory<float> f;
  Memory<std::int32_t> ids;
  Memory<std::int64_t> offsets;
  float* const k = f.kernels();
  float* const h = f.host();
  const metro::PackedMatrix good{k, metro::StoredType::f32, 1, 1};
  const metro::PackedMatrix bad{h, metro::StoredType::f32, 1, 1};
  const auto ffn = [](const metro::ExpertWeights& weights, const float* x, float* hidden, float* y) {
    metro::expert_ffn(std::vector<metro::ExpertWork>{{weights, 0, 1}}, x, hidden, y);
  };
  const metro::ExpertWeights weights{good, good, good};

  check({{"gate_top_k", "logits", [&] { metro::gate_top_k(h, 1, 1, 1, {}, nullptr, ids.kernels(), k); }},
         {"gate_top_k", "expert_ids", [&] { metro::gate_top_k(k, 1, 1, 1, {}, nullptr, ids.host(), k); }},
         {"gate_top_k", "weights", [&] { metro::gate_top_k(k, 1, 1, 1, {}, nullptr, ids.kernels(), h); }},
         {"expert_ffn", "x", [&] { ffn(weights, h, k, k); }},
         {"expert_ffn", "hidden", [&] { ffn(weights, k, h, k); }},
         {"expert_ffn", "y", [&] { ffn(weights, k, k, h); }},
         {"expert_ffn", "gate",
          [&] {
            ffn({bad, good, good}, k, k, k);
          }},
         {"expert_ffn", "up",
          [&] {
            ffn({good, bad, good}, k, k, k);
          }},
         {"expert_ffn", "down",
          [&] {
            ffn({good, good, bad}, k, k, k);
          }},
         {"combine", "results", [&] { metro::combine(h, offsets.kernels(), k, 1, 1, 1, k); }},
         {"combine", "offsets", [&] { metro::combine(k, offsets.host(), k, 1, 1, 1, k); }},
         {"combine", "weights", [&] { metro::combine(k, offsets.kernels(), h, 1, 1, 1, k); }},
         {"combine", "out", [&] { metro::combine(k, offsets.kernels(), k, 1, 1, 1, h); }}});
}

TEST_CASE("the routing step names the array of the host that it was given") {
  Memory<std::int32_t> i;
  const metro::RoutingTables tables(std::vector<std::int32_t>{0}, 1, 1, 0);
  metro::RoutingStep step(metro::StepPolicy::exact, {1, 1, 1, 4});

  check({{"routing_step", "expert_ids",
          [&] {
            step.route(tables, {i.host(), 1, 1, i.kernels()});
          }},
         {"routing_step", "row_begin", [&] {
            step.route(tables, {i.kernels(), 1, 1, i.host()});
          }}});
}

TEST_CASE("kernels of work lists name the array of the host that they were given") {
  Memory<float> f;
  Memory<std::int32_t> i;
  Memory<metro::HeaderMismatch> mismatch;
  float* const k = f.kernels();
  float* const h = f.host();
  const metro::RoutingStep step(metro::StepPolicy::exact, {1, 1, 1, 4});
  const metro::RoutingResult& lists = step.result();
  const metro::ResultMessages messages{1, 1, 0};
  const metro::PackedMatrix good{k, metro::StoredType::f32, 1, 1};
  const metro::PackedMatrix bad{h, metro::StoredType::f32, 1, 1};
  const auto table_of = [](const metro::ExpertWeights& weights) {
    return metro::ExpertWeightTable(std::vector<metro::ExpertWeights>{weights});
  };
  const metro::ExpertWeightTable table = table_of({good, good, good});
  const auto ffn = [&](const std::int32_t* work_begin, const std::int32_t* work, const float* rows, float* hidden,
                       float* y) {
    metro::listed_expert_ffn(table, {work_begin, work, 1, rows, 1, 1}, hidden, y);
  };

  check({{"pack_records", "rows",
          [&] {
            metro::pack_records(h, i.kernels(), i.kernels(), 1, {1, 1}, k);
          }},
         {"pack_records", "expert_ids",
          [&] {
            metro::pack_records(k, i.host(), i.kernels(), 1, {1, 1}, k);
          }},
         {"pack_records", "positions",
          [&] {
            metro::pack_records(k, i.kernels(), i.host(), 1, {1, 1}, k);
          }},
         {"pack_records", "records",
          [&] {
            metro::pack_records(k, i.kernels(), i.kernels(), 1, {1, 1}, h);
          }},
         {"unpack_ids", "records",
          [&] {
            metro::unpack_ids(h, 1, {1, 1}, i.kernels());
          }},
         {"unpack_ids", "expert_ids",
          [&] {
            metro::unpack_ids(k, 1, {1, 1}, i.host());
          }},
         {"pack_results", "results", [&] { metro::pack_results(lists, messages, 1, h, k); }},
         {"pack_results", "send", [&] { metro::pack_results(lists, messages, 1, k, h); }},
         {"check_headers", "received", [&] { metro::check_headers(lists, messages, 0, h, mismatch.kernels()); }},
         {"check_headers", "mismatch", [&] { metro::check_headers(lists, messages, 0, k, mismatch.host()); }},
         {"combine_results", "received", [&] { metro::combine_results(lists, messages, h, k, 1, 1, k); }},
         {"combine_results", "weights", [&] { metro::combine_results(lists, messages, k, h, 1, 1, k); }},
         {"combine_results", "residual", [&] { metro::combine_results(lists, messages, k, k, 1, 1, h); }},
         {"expert weights", "gate",
          [&] {
            table_of({bad, good, good});
          }},
         {"expert weights", "up",
          [&] {
            table_of({good, bad, good});
          }},
         {"expert weights", "down",
          [&] {
            table_of({good, good, bad});
          }},
         {"listed_expert_ffn", "work_begin", [&] { ffn(i.host(), i.kernels(), k, k, k); }},
         {"listed_expert_ffn", "work", [&] { ffn(i.kernels(), i.host(), k, k, k); }},
         {"listed_expert_ffn", "rows", [&] { ffn(i.kernels(), i.kernels(), h, k, k); }},
         {"listed_expert_ffn", "hidden", [&] { ffn(i.kernels(), i.kernels(), k, h, k); }},
         {"listed_expert_ffn", "y", [&] { ffn(i.kernels(), i.kernels(), k, k, h); }}});
}

TEST_CASE("memory that was given back is no memory of kernels") {
  const float* freed = nullptr;
  {
    const metro::Buffer<float> buffer("rows", 64);
    freed = buffer.data();
  }
  const metro::Buffer<float> y("y", 8);  // may lie where the other began

  CHECK_THROWS_WITH(metro::add(freed + 32, 1, y.data()), Catch::Contains("add: x is not memory of kernels"));
}
