// Runs a small job on the embedded model, on all ranks of a transport, for tests of what a run leaves behind.
#pragma once

#include "deck/deck.hpp"
#include "engine/job.hpp"
#include "support/model_fixture.hpp"
#include "transport/agree.hpp"
#include "transport/transport.hpp"

#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace metro::test {

inline void write_requests(const std::string& path) {
  std::ofstream file(path);
  for (int i = 0; i < 10; ++i) {
    file << R"({"custom_id": "r)" << i << R"(", "method": "POST", "url": "/v1/completions", "body": {"prompt": ")"
         << std::string(static_cast<std::size_t>(1 + 20 * (i % 4)), 'a') << R"( cat sat", "max_tokens": )" << 3 + 2 * i
         << R"(, "ignore_eos": )" << (i % 2 == 0 ? "true" : "false") << "}}\n";
  }
  file << "{\"prompt\": 7}\n";  // rejected
}

// Runs a job of all ranks in a folder that rank 0 made; the same folder name on all ranks.
class RunOnTinyModel {
 public:
  // more_keys: further lines of the deck.
  RunOnTinyModel(Transport& transport, const std::string& decode_policy, const std::string& more_keys = "") {
    folder_ = from_rank_0(transport, [&] {
      checkpoint_.emplace(tiny_folder());
      write_requests(scratch_.file("requests.jsonl"));
      return scratch_.path().string() + "\n" + checkpoint_->path();
    });
    const std::string checkpoint = folder_.substr(folder_.find('\n') + 1);
    folder_.resize(folder_.find('\n'));
    const std::string text = "model.checkpoint = \"" + checkpoint + "\"\nmodel.max_context = 128\nrequests.input = \"" +
                             folder_ + "/requests.jsonl\"\noutput.directory = \"" + folder_ +
                             "/out\"\ntrace.record = \"" + folder_ +
                             "/out/trace.h5\"\nexperts.replication = 1.5\nrouting.decode = \"" + decode_policy +
                             "\"\nbatch.max_sequences_per_rank = 3\nbatch.prefill_chunk = 16\n" + more_keys;
    deck_ = parse_deck(text, "test deck", {});
    const JobContext job{std::vector<std::int64_t>(static_cast<std::size_t>(transport.size()), 0),
                         std::vector<std::string>(static_cast<std::size_t>(transport.size()), "host"), "test"};
    exit_code_ = run_job(deck_, {}, job, transport);
  }

  ExitCode exit_code() const { return exit_code_; }
  const Deck& deck() const { return deck_; }
  std::string output(const std::string& name) const { return folder_ + "/out/" + name; }

 private:
  ScratchFolder scratch_;  // used on rank 0
  std::optional<ScratchCheckpoint> checkpoint_;
  std::string folder_;
  Deck deck_;
  ExitCode exit_code_ = ExitCode::internal;
};

}  // namespace metro::test
