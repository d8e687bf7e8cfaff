// Records, messages and sums by the lists of the routing step.
#include "kernels/decode_lists.hpp"

#include "base/error.hpp"
#include "kernels/portable/kokkos_compat.hpp"
#include "kernels/portable/math.hpp"

#include <cstring>
#include <string>

namespace metro {

namespace {

using namespace portable;

// The list that holds element `idx` of lists one behind the other: the last that begins at or before it.
KOKKOS_INLINE_FUNCTION std::int64_t list_of(const std::int32_t* begin, std::int64_t num_lists, std::int32_t idx) {
  std::int64_t first = 0;
  std::int64_t end = num_lists;
  while (end - first > 1) {
    const std::int64_t middle = first + (end - first) / 2;
    if (begin[middle] <= idx) {
      first = middle;
    } else {
      end = middle;
    }
  }
  return first;
}

// Where the message of `rank` begins; rows_before: results in the messages before it.
KOKKOS_INLINE_FUNCTION std::int64_t message_begin(const ResultMessages& messages, std::int64_t rank,
                                                  std::int64_t rows_before) {
  const std::int64_t rows = messages.capacity > 0 ? rank * messages.capacity : rows_before;
  return rank * ResultMessages::header_floats + rows * messages.width;
}

KOKKOS_INLINE_FUNCTION bool has_room(const ResultMessages& messages, std::int64_t num_results) {
  return messages.capacity == 0 || num_results <= messages.capacity;
}

struct HeaderWords {
  std::uint64_t checksum;
  std::int64_t count;
};
static_assert(sizeof(HeaderWords) == ResultMessages::header_floats * sizeof(float));

// The i-th id of a record is 32 bits among floats.
KOKKOS_INLINE_FUNCTION void store_id(std::int32_t id, float* place) {
  std::memcpy(place, &id, sizeof id);
}
KOKKOS_INLINE_FUNCTION std::int32_t loaded_id(const float* place) {
  std::int32_t id = 0;
  std::memcpy(&id, place, sizeof id);
  return id;
}

// Sums of some columns, in registers.
struct CombineItems {
  static constexpr std::int64_t columns_of_item = 512;
  static constexpr std::int64_t columns_at_once = 8;  // of a thread

  RoutingResult routing;
  ResultMessages messages;
  const float* received;
  const float* weights;
  std::int64_t top_k;
  float* residual;

  KOKKOS_FUNCTION static std::int64_t items_of_row(std::int64_t width) {
    return (width + columns_of_item - 1) / columns_of_item;
  }

  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t item) const {
    const std::int64_t width = messages.width;
    const std::int64_t row = item / items_of_row(width);
    const std::int64_t first = item % items_of_row(width) * columns_of_item;
    const std::int64_t end = first + columns_of_item < width ? first + columns_of_item : width;
    const std::int64_t step = team.size();
    for (std::int64_t begin = first + team.rank(); begin < end; begin += columns_at_once * step) {
      add_columns(row, begin, end, step);
    }
  }

 private:
  // Columns begin, begin + step, ... below end.
  KOKKOS_FUNCTION void add_columns(std::int64_t row, std::int64_t begin, std::int64_t end, std::int64_t step) const {
    float sums[columns_at_once] = {};
    bool is_served = false;
    for (std::int64_t k = 0; k < top_k; ++k) {
      const std::int32_t place = routing.returned_row[row * top_k + k];
      if (place < 0) {
        continue;
      }
      is_served = true;
      const std::int64_t server = list_of(routing.returned_begin, messages.num_ranks, place);
      const std::int64_t rows_before = routing.returned_begin[server];
      const float* result = received + message_begin(messages, server, rows_before) + ResultMessages::header_floats +
                            (place - rows_before) * messages.width;
      const float weight = weights[row * top_k + k];
      for (std::int64_t j = 0; j < columns_at_once; ++j) {
        if (begin + j * step < end) {
          sums[j] = fused(weight, result[begin + j * step], sums[j]);
        }
      }
    }
    float* sum_to = residual + row * messages.width;
    for (std::int64_t j = 0; j < columns_at_once && is_served; ++j) {
      if (begin + j * step < end) {
        sum_to[begin + j * step] = sum_to[begin + j * step] + sums[j];
      }
    }
  }
};

void require_messages(const char* kernel, const char* argument, const ResultMessages& messages, const float* buffer) {
  METRO_REQUIRE(messages.num_ranks >= 1 && messages.width >= 0 && messages.capacity >= 0,
                std::to_string(messages.num_ranks) + " messages of " + std::to_string(messages.capacity));
  require_kernel_memory(kernel, {{argument, buffer}});
}

}  // namespace

void pack_records(const float* rows, const std::int32_t* expert_ids, const std::int32_t* positions,
                  std::int64_t num_rows, const RecordShape& shape, float* records) {
  require_kernel_memory("pack_records",
                        {{"rows", rows}, {"expert_ids", expert_ids}, {"positions", positions}, {"records", records}});
  const std::int64_t record_floats = shape.num_floats();
  for_each_team(
      "pack_records", num_rows, KOKKOS_LAMBDA(const Team& team, std::int64_t row) {
        const float* source = rows + row * shape.hidden_size;
        const std::int32_t* ids = expert_ids + row * shape.top_k;
        const bool is_padding = positions[row] < 0;
        float* record = records + row * record_floats;
        for_each_element(team, shape.hidden_size, [=](std::int64_t i) { record[i] = source[i]; });
        for_each_element(team, shape.top_k,
                         [=](std::int64_t k) { store_id(is_padding ? -1 : ids[k], record + shape.hidden_size + k); });
      });
}

void unpack_ids(const float* records, std::int64_t num_records, const RecordShape& shape, std::int32_t* expert_ids) {
  require_kernel_memory("unpack_ids", {{"records", records}, {"expert_ids", expert_ids}});
  const std::int64_t record_floats = shape.num_floats();
  // Records in groups, so that an item is worth a launch on a host; one per thread on a device.
  constexpr std::int64_t group = device_form ? 1 : 256;
  for_each_item(
      "unpack_ids", (num_records + group - 1) / group, KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t end = (item + 1) * group < num_records ? (item + 1) * group : num_records;
        for (std::int64_t record = item * group; record < end; ++record) {
          const float* ids = records + record * record_floats + shape.hidden_size;
          for (std::int64_t k = 0; k < shape.top_k; ++k) {
            expert_ids[record * shape.top_k + k] = loaded_id(ids + k);
          }
        }
      });
}

void pack_results(const RoutingResult& routing, const ResultMessages& messages, std::int64_t max_work,
                  const float* results, float* send) {
  require_messages("pack_results", "send", messages, send);
  require_kernel_memory("pack_results", {{"results", results}});
  for_each_team(
      "pack_results", messages.num_ranks + max_work, KOKKOS_LAMBDA(const Team& team, std::int64_t item) {
        if (item < messages.num_ranks) {
          const std::int64_t before = routing.sent_begin[item];
          if (team.rank() == 0) {
            const HeaderWords header{*routing.checksum, routing.sent_begin[item + 1] - before};
            std::memcpy(send + message_begin(messages, item, before), &header, sizeof header);
          }
          return;
        }
        const auto served = static_cast<std::int32_t>(item - messages.num_ranks);
        if (served >= routing.sent_begin[messages.num_ranks]) {
          return;
        }
        const std::int64_t owner = list_of(routing.sent_begin, messages.num_ranks, served);
        const std::int64_t before = routing.sent_begin[owner];
        if (!has_room(messages, served - before + 1)) {
          return;
        }
        const float* source = results + routing.sent_rows[served] * messages.width;
        float* destination = send + message_begin(messages, owner, before) + ResultMessages::header_floats +
                             (served - before) * messages.width;
        for_each_element(team, messages.width, [=](std::int64_t i) { destination[i] = source[i]; });
      });
}

void check_headers(const RoutingResult& routing, const ResultMessages& messages, std::int64_t moe_layer,
                   const float* received, HeaderMismatch* mismatch) {
  require_messages("check_headers", "received", messages, received);
  require_kernel_memory("check_headers", {{"mismatch", mismatch}});
  const auto layer = static_cast<std::int32_t>(moe_layer);
  for_each_team(
      "check_headers", 1, KOKKOS_LAMBDA(const Team& team, std::int64_t /*one*/) {
        if (mismatch->is_set != 0) {
          return;
        }
        const std::uint64_t checksum = *routing.checksum;
        HeaderMismatch own_first;
        for (std::int64_t sender = team.rank(); sender < messages.num_ranks && own_first.is_set == 0;
             sender += team.size()) {
          const std::int64_t before = routing.returned_begin[sender];
          const std::int64_t expected = routing.returned_begin[sender + 1] - before;
          HeaderWords header;
          std::memcpy(&header, received + message_begin(messages, sender, before), sizeof header);
          const bool fits = has_room(messages, expected);
          if (header.checksum != checksum || header.count != expected || !fits) {
            own_first = {
                1,        layer,       static_cast<std::int32_t>(sender), fits ? 0 : 1, checksum, header.checksum,
                expected, header.count};
          }
        }
        // The lowest sender is the one for which this is largest.
        const std::int64_t order = own_first.is_set != 0 ? messages.num_ranks - own_first.sender : 0;
        const std::int64_t lowest = team.max(order);
        if (order > 0 && order == lowest) {
          *mismatch = own_first;
        }
      });
}

void combine_results(const RoutingResult& routing, const ResultMessages& messages, const float* received,
                     const float* weights, std::int64_t num_rows, std::int64_t top_k, float* residual) {
  require_messages("combine_results", "received", messages, received);
  require_kernel_memory("combine_results", {{"weights", weights}, {"residual", residual}});
  for_each_team("combine_results", num_rows * CombineItems::items_of_row(messages.width),
                CombineItems{routing, messages, received, weights, top_k, residual});
}

}  // namespace metro
