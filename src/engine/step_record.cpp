#include "engine/step_record.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace metro {

namespace {

void append(std::vector<std::byte>& bytes, const auto& value) {
  const auto raw = std::as_bytes(std::span(&value, 1));
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

template <class T>
T take(const std::byte*& cursor) {
  T value;
  std::memcpy(&value, cursor, sizeof(T));
  cursor += sizeof(T);
  return value;
}

std::int64_t num_likeliest(const SequenceRows& rows) {
  return std::max<std::int64_t>(0, rows.sequence->request.num_logprobs);
}

// State; measurements; whether to stop; then for each sampling row, and then for each scored row: token, stop string,
// logprob, the likeliest.
std::int64_t record_bytes(const std::vector<SequenceRows>& rows_of_rank) {
  constexpr auto token_bytes = static_cast<std::int64_t>(2 * sizeof(std::int32_t) + sizeof(float));
  constexpr auto pair_bytes = static_cast<std::int64_t>(sizeof(std::int32_t) + sizeof(float));
  auto bytes = static_cast<std::int64_t>(sizeof(AgreedState) + sizeof(RankStep) + sizeof(bool));
  for (const SequenceRows& rows : rows_of_rank) {
    bytes += ((rows.samples ? 1 : 0) + rows.num_scored()) * (token_bytes + num_likeliest(rows) * pair_bytes);
  }
  return bytes;
}

void append_token(std::vector<std::byte>& bytes, const SampledToken& token) {
  append(bytes, token.token);
  append(bytes, token.stop_string);
  append(bytes, token.logprob);
  for (const TokenLogprob& likely : token.likeliest) {
    append(bytes, likely.token);
    append(bytes, likely.logprob);
  }
}

SampledToken take_token(const std::byte*& cursor, std::int64_t num_likeliest) {
  SampledToken token;
  token.token = take<std::int32_t>(cursor);
  token.stop_string = take<std::int32_t>(cursor);
  token.logprob = take<float>(cursor);
  for (std::int64_t i = 0; i < num_likeliest; ++i) {
    const auto id = take<std::int32_t>(cursor);
    token.likeliest.push_back({id, take<float>(cursor)});
  }
  return token;
}

std::vector<std::byte> pack_record(const RankRecord& own, const AgreedState& state) {
  std::vector<std::byte> bytes;
  append(bytes, state);
  append(bytes, own.measured);
  append(bytes, own.stop);
  for (const SampledToken& token : own.sampled) {
    append_token(bytes, token);
  }
  for (const SampledToken& token : own.prompt_scores) {
    append_token(bytes, token);
  }
  return bytes;
}

void unpack_record(const std::byte* cursor, const std::vector<SequenceRows>& rows_of_rank, StepRecord& record) {
  std::vector<SampledToken>& sampled = record.sampled_of_rank.emplace_back();
  for (const SequenceRows& rows : rows_of_rank) {
    if (rows.samples) {
      sampled.push_back(take_token(cursor, num_likeliest(rows)));
    }
  }
  for (const SequenceRows& rows : rows_of_rank) {
    for (std::int64_t i = 0; i < rows.num_scored(); ++i) {
      record.prompt_scores[rows.sequence->request.id].push_back(take_token(cursor, num_likeliest(rows)));
    }
  }
}

void require_same(std::size_t rank, const char* what, Digest digest_of_rank_0, Digest digest) {
  if (digest != digest_of_rank_0) {
    throw AgreedError(ExitCode::internal, fmt::format("ranks 0 and {} disagree about the {}: digest {} and {}", rank,
                                                      what, to_hex(digest_of_rank_0), to_hex(digest)));
  }
}

}  // namespace

StepRecord exchange_step_record(const StepPlan& plan, const RankRecord& own_record, const AgreedState& state,
                                Transport& transport) {
  std::vector<std::int64_t> recv_bytes;
  for (const auto& rows : plan.rows_of_rank) {
    recv_bytes.push_back(record_bytes(rows));
  }
  const std::vector<std::byte> own = pack_record(own_record, state);
  METRO_REQUIRE(static_cast<std::int64_t>(own.size()) == recv_bytes[static_cast<std::size_t>(transport.rank())],
                "step record of unexpected size");
  std::vector<std::byte> all(
      static_cast<std::size_t>(std::accumulate(recv_bytes.begin(), recv_bytes.end(), std::int64_t{0})));
  transport.set_phase("step record");
  transport.all_gather(own, all, recv_bytes);

  StepRecord step;
  const std::byte* cursor = all.data();
  AgreedState state_of_rank_0;
  std::memcpy(&state_of_rank_0, cursor, sizeof(AgreedState));
  for (std::size_t rank = 0; rank < plan.rows_of_rank.size(); ++rank) {
    const std::byte* record = cursor;
    const auto state_of_rank = take<AgreedState>(record);
    require_same(rank, "schedule", state_of_rank_0.schedule, state_of_rank.schedule);
    require_same(rank, "placement", state_of_rank_0.placement, state_of_rank.placement);
    step.measured_of_rank.push_back(take<RankStep>(record));
    step.stop = take<bool>(record) || step.stop;
    unpack_record(record, plan.rows_of_rank[rank], step);
    cursor += recv_bytes[rank];
  }
  return step;
}

std::vector<RankStep> exchange_measured(const RankStep& measured, Transport& transport) {
  std::vector<RankStep> measured_of_rank(static_cast<std::size_t>(transport.size()));
  const std::vector<std::int64_t> recv_bytes(measured_of_rank.size(), static_cast<std::int64_t>(sizeof(RankStep)));
  transport.set_phase("measurements");
  transport.all_gather(std::as_bytes(std::span(&measured, 1)), std::as_writable_bytes(std::span(measured_of_rank)),
                       recv_bytes);
  return measured_of_rank;
}

}  // namespace metro
