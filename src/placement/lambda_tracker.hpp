// LambdaTracker: the least lambda of every sampled step of one MoE layer, kept while experts change their hosts. This
// is what the search for a placement spends its time on.
//
// For every step it holds one assignment (active expert -> rank) that reaches the optimum, and a certificate: a set X
// of ranks on which so many active experts must run that lambda cannot be less (every expert whose hosts all lie in X).
// A change touches a step only if an expert lost the rank that served it, or the certificate no longer proves lambda;
// then the assignment is repaired along augmenting paths, as policy `exact` does it. Method: docs/placement.md.
#pragma once

#include "placement/activation_sample.hpp"
#include "placement/rank_mask.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace metro {

template <int num_words>
class LambdaTracker {
 public:
  using Mask = RankMask<num_words>;
  struct HostChange {
    std::int32_t expert;
    Mask hosts;  // not empty
  };

  // hosts [num_experts]: the ranks that hold each expert, none empty. Steps without active experts count as lambda 0.
  LambdaTracker(const ActivationSample& sample, std::int64_t moe_layer, std::vector<Mask> hosts,
                std::int64_t num_ranks);

  // Sum over steps of the least lambda, and of ceil(active / ranks), which it cannot fall below.
  std::int64_t total() const { return total_; }
  std::int64_t total_bound() const { return total_bound_; }

  const Mask& hosts_of(std::int64_t expert) const { return hosts_[static_cast<std::size_t>(expert)]; }

  // Gives one expert, or two different ones, new hosts, unless total() would grow by more than `most_growth`, or would
  // very likely do so, judged by a first part of the steps: then nothing changes and the result is false. For that the
  // steps must lie in no particular order (batch sizes mixed, not one after the other).
  bool change_hosts(std::span<const HostChange> changes, std::int64_t most_growth);

 private:
  struct Step {
    std::int32_t lambda = 0;
    std::int32_t bound = 0;    // ceil(active / ranks)
    std::int32_t surplus = 0;  // experts that must run within the certificate - (lambda - 1) * its ranks; >= 1
    Mask certificate;
  };
  struct Occurrence {
    std::int32_t step;
    std::int32_t entry;  // in entry_expert_ and entry_rank_
  };
  // A change while it is being tried: where it stands in the occurrences of its expert.
  struct Trial {
    std::span<const Occurrence> occurrences;
    std::size_t position = 0;
    Mask old_hosts, new_hosts;

    std::int32_t next_step() const {
      return position < occurrences.size() ? occurrences[position].step : std::numeric_limits<std::int32_t>::max();
    }
  };
  struct Growth {
    std::int64_t sum = 0;      // of lambda over the steps tried so far
    std::int64_t changed = 0;  // steps whose lambda changed
  };
  struct SavedStep {
    std::int32_t step_idx;
    Step step;
  };
  struct SavedEntry {
    std::int32_t step, entry;
    std::uint16_t rank;
  };

  std::span<const Occurrence> occurrences_of(std::int32_t expert) const {
    const auto idx = static_cast<std::size_t>(expert);
    return {occurrences_.data() + occurrence_begin_[idx], occurrences_.data() + occurrence_begin_[idx + 1]};
  }
  std::span<std::uint16_t> loads_of(std::int32_t step) {
    return std::span(loads_).subspan(static_cast<std::size_t>(step * num_ranks_), static_cast<std::size_t>(num_ranks_));
  }

  void try_until(std::int32_t step_end, std::span<Trial, 2> trials, Growth& growth);
  void restore();

  std::int32_t least_loaded_host(std::int32_t step, std::int32_t entry) const;
  void solve_first(std::int32_t step);
  void repair(std::int32_t step, bool certificate_holds);
  bool lower_one(std::int32_t step, std::int32_t from_rank, std::int32_t max_load);
  void move_along_path(std::int32_t step, std::int32_t from_rank, std::int32_t to_rank);
  void move_entry(std::int32_t step, std::int32_t entry, std::int32_t to_rank);

  std::int64_t num_ranks_;
  std::vector<Mask> hosts_;  // [num_experts]
  std::int64_t total_ = 0;
  std::int64_t total_bound_ = 0;

  std::vector<Step> steps_;
  std::vector<std::uint16_t> loads_;        // activated per rank, [num_steps, num_ranks]
  std::vector<std::int32_t> entry_begin_;   // entries of step s: entry_begin_[s] .. entry_begin_[s + 1]
  std::vector<std::int32_t> entry_expert_;  // active experts of all steps, ascending within a step
  std::vector<std::uint16_t> entry_rank_;   // the rank that serves it
  std::vector<std::int32_t> occurrence_begin_;
  std::vector<Occurrence> occurrences_;  // by expert, then by step

  // Scratch of one change, and what takes it back.
  std::vector<SavedStep> saved_steps_;
  std::vector<SavedEntry> saved_entries_;
  Mask reached_;                               // of the last search
  std::vector<std::int32_t> reached_through_;  // [num_ranks]: the entry whose move reaches the rank
};

extern template class LambdaTracker<1>;
extern template class LambdaTracker<4>;
extern template class LambdaTracker<16>;

}  // namespace metro
