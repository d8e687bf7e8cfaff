#include "kernels/decode_lists.hpp"

#include "base/integers.hpp"
#include "decode_step_data.hpp"
#include "mirror_data.hpp"
#include "support/kernel_memory.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

using metro::at;
using metro::HeaderMismatch;
using metro::Mirror;
using metro::RecordShape;
using metro::ResultMessages;
using metro::StepPolicy;
using metro::StoredType;
using metro::test::decode_on_ranks;
using metro::test::DecodeProblem;
using metro::test::DecodeRank;
using metro::test::DecodeShape;
using metro::test::expected_residual;
using metro::test::host_copy;
using metro::test::mirror_of;
using metro::test::Numbers;
using metro::test::same_bits;
using metro::test::values_of;

namespace {

std::vector<float> residual_of(const std::vector<DecodeRank>& ranks) {
  std::vector<float> all;
  for (const DecodeRank& rank : ranks) {
    const std::vector<float> own = rank.residual();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

// Changes one 64-bit word of the header from `sender` as it lies in the exact messages of `rank`.
void change_header(DecodeRank& rank, const DecodeProblem& problem, std::int64_t sender, std::int64_t word) {
  const std::vector<std::int32_t> begin = host_copy(rank.routing().returned_begin, problem.shape.num_ranks + 1);
  const std::int64_t header =
      sender * ResultMessages::header_floats + begin[at(sender)] * problem.shape.hidden_size + 2 * word;
  const std::vector<float> other = {-7.0F};
  metro::copy_from_host<float>(rank.received().kernels() + header, other);
}

}  // namespace

TEST_CASE("a decode step by lists of the device gives the bits of lists of the host, for any ranks and placement") {
  const std::int64_t num_ranks = GENERATE(1, 2, 3, 5);
  const StepPolicy policy = GENERATE(StepPolicy::exact, StepPolicy::metro, StepPolicy::even);
  const bool is_exact = GENERATE(true, false);
  const DecodeShape shape = {12, num_ranks, 12 / num_ranks + 3, 3, 70, 36, 8, StoredType::bf16, StoredType::f32};
  std::vector<std::int64_t> rows_of_rank = {5, 8, 0, 1, 3};
  rows_of_rank.resize(at(num_ranks));
  const DecodeProblem problem(shape, rows_of_rank, static_cast<std::uint32_t>(num_ranks));

  const std::vector<DecodeRank> ranks =
      decode_on_ranks(problem, policy, is_exact ? 0 : shape.padded_rows * shape.top_k);

  CHECK(same_bits(residual_of(ranks), expected_residual(problem)));
  for (const DecodeRank& rank : ranks) {
    CHECK(rank.mismatch().is_set == 0);
  }
}

TEST_CASE("a decode step of wide rows has the same bits") {
  const DecodeShape shape = {6, 2, 4, 2, 1100, 40, 2};
  const DecodeProblem problem(shape, {2, 1}, 7);

  const std::vector<DecodeRank> ranks = decode_on_ranks(problem, StepPolicy::exact, 0);

  CHECK(same_bits(residual_of(ranks), expected_residual(problem)));
}

TEST_CASE("a decode step without rows changes nothing and all headers agree") {
  const DecodeShape shape = {8, 3, 4, 2, 40, 33, 4};
  const DecodeProblem problem(shape, {0, 0, 0}, 8);

  const std::vector<DecodeRank> ranks = decode_on_ranks(problem, StepPolicy::exact, 0);

  CHECK(same_bits(residual_of(ranks), problem.residual));
  for (const DecodeRank& rank : ranks) {
    CHECK(rank.mismatch().is_set == 0);
  }
}

TEST_CASE("launches of a decode step do not depend on the rows") {
  const DecodeShape shape = {8, 2, 6, 2, 40, 33, 4};
  const DecodeProblem full(shape, {4, 4}, 9);
  const DecodeProblem empty(shape, {0, 0}, 10);

  const std::int64_t before = metro::num_launches();
  decode_on_ranks(full, StepPolicy::exact, 0);
  const std::int64_t of_full = metro::num_launches() - before;
  decode_on_ranks(empty, StepPolicy::exact, 0);

  CHECK(metro::num_launches() - before - of_full == of_full);
}

TEST_CASE("records hold rows and ids, and no ids where the row is padding") {
  const std::vector<float> rows = {1, 2, 3, 4, 5, 6};
  const std::vector<std::int32_t> ids = {7, 1 << 30, 0, 9};
  const RecordShape shape{3, 2};
  const Mirror<float> all_rows = mirror_of(rows);
  const Mirror<std::int32_t> all_ids = mirror_of(ids);
  const Mirror<std::int32_t> positions = mirror_of(std::vector<std::int32_t>{4, -1});
  const Mirror<float> records("records", 2 * shape.num_floats());
  const Mirror<std::int32_t> unpacked("ids", 4);

  metro::pack_records(all_rows.kernels(), all_ids.kernels(), positions.kernels(), 2, shape, records.kernels());
  metro::unpack_ids(records.kernels(), 2, shape, unpacked.kernels());

  CHECK(values_of(unpacked) == std::vector<std::int32_t>{7, 1 << 30, -1, -1});
  const std::vector<float> packed = values_of(records);
  CHECK(std::equal(rows.begin(), rows.begin() + 3, packed.begin()));
  CHECK(std::equal(rows.begin() + 3, rows.end(), packed.begin() + 5));
}

TEST_CASE("the first header that differs is kept with what was expected and what came") {
  const DecodeShape shape = {8, 3, 4, 2, 40, 33, 4};
  const DecodeProblem problem(shape, {4, 2, 3}, 11);
  std::vector<DecodeRank> ranks = decode_on_ranks(problem, StepPolicy::exact, 0);
  DecodeRank& rank = ranks[1];
  const std::vector<std::int32_t> begin = host_copy(rank.routing().returned_begin, 4);
  const std::uint64_t checksum = host_copy(rank.routing().checksum, 1).front();

  change_header(rank, problem, 2, 0);
  change_header(rank, problem, 1, 1);
  rank.finish(5);
  const HeaderMismatch first = rank.mismatch();
  change_header(rank, problem, 0, 0);
  rank.finish(6);

  CHECK(first.is_set == 1);
  CHECK(first.moe_layer == 5);
  CHECK(first.sender == 1);
  CHECK(first.over_capacity == 0);
  CHECK(first.own_checksum == checksum);
  CHECK(first.checksum == checksum);
  CHECK(first.expected_count == begin[2] - begin[1]);
  CHECK(first.count != first.expected_count);
  CHECK(rank.mismatch().moe_layer == 5);
  CHECK(rank.mismatch().sender == 1);
}

TEST_CASE("a checksum of another routing is a mismatch") {
  const DecodeShape shape = {8, 2, 5, 2, 40, 33, 4};
  const DecodeProblem problem(shape, {4, 2}, 12);
  std::vector<DecodeRank> ranks = decode_on_ranks(problem, StepPolicy::exact, 0);

  change_header(ranks[0], problem, 1, 0);
  ranks[0].finish(2);

  CHECK(ranks[0].mismatch().sender == 1);
  CHECK(ranks[0].mismatch().checksum != ranks[0].mismatch().own_checksum);
  CHECK(ranks[0].mismatch().count == ranks[0].mismatch().expected_count);
}

TEST_CASE("a message without room for its results is refused by its receiver") {
  const DecodeShape shape = {4, 1, 4, 2, 40, 33, 4};
  const DecodeProblem problem(shape, {4}, 13);

  const std::vector<DecodeRank> enough = decode_on_ranks(problem, StepPolicy::exact, 8);
  const std::vector<DecodeRank> too_little = decode_on_ranks(problem, StepPolicy::exact, 7);

  CHECK(enough[0].mismatch().is_set == 0);
  CHECK(too_little[0].mismatch().is_set == 1);
  CHECK(too_little[0].mismatch().over_capacity == 1);
  CHECK(too_little[0].mismatch().expected_count == 8);
  CHECK(too_little[0].mismatch().moe_layer == 3);
}
