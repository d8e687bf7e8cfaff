#include "engine/step_record.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

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

std::int64_t record_bytes(const std::vector<SequenceRows>& rows_of_rank) {
  constexpr auto pair_bytes = static_cast<std::int64_t>(sizeof(std::int32_t) + sizeof(float));
  auto bytes = static_cast<std::int64_t>(sizeof(Digest) + sizeof(RankStep));
  for (const SequenceRows& rows : rows_of_rank) {
    if (rows.samples) {
      bytes += (1 + num_likeliest(rows)) * pair_bytes;
    }
  }
  return bytes;
}

std::vector<std::byte> pack_record(const std::vector<SampledToken>& sampled, Digest schedule_digest,
                                   const RankStep& measured) {
  std::vector<std::byte> bytes;
  append(bytes, schedule_digest);
  append(bytes, measured);
  for (const SampledToken& token : sampled) {
    append(bytes, token.token);
    append(bytes, token.logprob);
    for (const TokenLogprob& likely : token.likeliest) {
      append(bytes, likely.token);
      append(bytes, likely.logprob);
    }
  }
  return bytes;
}

std::vector<SampledToken> unpack_record(const std::byte* cursor, const std::vector<SequenceRows>& rows_of_rank) {
  std::vector<SampledToken> sampled;
  for (const SequenceRows& rows : rows_of_rank) {
    if (!rows.samples) {
      continue;
    }
    SampledToken token;
    token.token = take<std::int32_t>(cursor);
    token.logprob = take<float>(cursor);
    for (std::int64_t i = 0; i < num_likeliest(rows); ++i) {
      const auto id = take<std::int32_t>(cursor);
      token.likeliest.push_back({id, take<float>(cursor)});
    }
    sampled.push_back(std::move(token));
  }
  return sampled;
}

}  // namespace

std::vector<std::vector<SampledToken>> exchange_step_record(const StepPlan& plan,
                                                            const std::vector<SampledToken>& sampled,
                                                            Digest schedule_digest, const RankStep& measured,
                                                            std::span<RankStep> measured_of_rank,
                                                            Transport& transport) {
  std::vector<std::int64_t> recv_bytes;
  for (const auto& rows : plan.rows_of_rank) {
    recv_bytes.push_back(record_bytes(rows));
  }
  const std::vector<std::byte> own = pack_record(sampled, schedule_digest, measured);
  METRO_REQUIRE(static_cast<std::int64_t>(own.size()) == recv_bytes[static_cast<std::size_t>(transport.rank())],
                "step record of unexpected size");
  std::vector<std::byte> all(
      static_cast<std::size_t>(std::accumulate(recv_bytes.begin(), recv_bytes.end(), std::int64_t{0})));
  transport.set_phase("step record");
  transport.all_gather(own, all, recv_bytes);

  std::vector<std::vector<SampledToken>> sampled_of_rank;
  const std::byte* cursor = all.data();
  Digest digest_of_rank_0 = 0;
  std::memcpy(&digest_of_rank_0, cursor, sizeof(Digest));
  for (std::size_t rank = 0; rank < plan.rows_of_rank.size(); ++rank) {
    const std::byte* record = cursor;
    const auto digest = take<Digest>(record);
    if (digest != digest_of_rank_0) {
      throw AgreedError(ExitCode::internal, fmt::format("ranks 0 and {} disagree about the schedule: digest {} and {}",
                                                        rank, to_hex(digest_of_rank_0), to_hex(digest)));
    }
    measured_of_rank[rank] = take<RankStep>(record);
    sampled_of_rank.push_back(unpack_record(record, plan.rows_of_rank[rank]));
    cursor += recv_bytes[rank];
  }
  return sampled_of_rank;
}

void exchange_measured(const RankStep& measured, std::span<RankStep> measured_of_rank, Transport& transport) {
  const std::vector<std::int64_t> recv_bytes(measured_of_rank.size(), static_cast<std::int64_t>(sizeof(RankStep)));
  transport.set_phase("measurements");
  transport.all_gather(std::as_bytes(std::span(&measured, 1)), std::as_writable_bytes(measured_of_rank), recv_bytes);
}

}  // namespace metro
