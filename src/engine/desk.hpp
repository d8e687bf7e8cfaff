// What only rank 0 has: the input, the output, and the folder in which a run may go on.
#pragma once

#include "checkpoint/checkpoint_reader.hpp"
#include "deck/deck.hpp"
#include "report/metrics_writer.hpp"
#include "report/summary.hpp"
#include "requests/chat_renderer.hpp"
#include "requests/completion_writer.hpp"
#include "requests/request_reader.hpp"
#include "resume/run_folder.hpp"
#include "tokenizer/tokenizer.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace metro {

struct Desk {
  std::unique_ptr<Tokenizer> tokenizer;  // other ranks load it when they need it
  std::unique_ptr<ChatRenderer> renderer;
  std::unique_ptr<RequestReader> reader;
  std::unique_ptr<RunFolder> folder;
  std::string trace_path;  // of this part of the run
  // Once everything is loaded.
  std::unique_ptr<CompletionWriter> writer;
  std::unique_ptr<MetricsWriter> metrics;
};

std::unique_ptr<Tokenizer> load_tokenizer(const CheckpointReader& checkpoint);

// Rank 0, before the long part of the start: what is wrong with input and output shows at once. max_context: the one
// that was settled. Throws Error.
Desk open_desk(const Deck& deck, bool overwrite, const CheckpointReader& checkpoint, std::int64_t max_context);

// Rank 0, when everything is loaded: makes the files of the output, or opens those of the earlier part.
void open_output(Desk& desk, const Deck& deck, const RunIdentity& identity);

// Rank 0: for the summary.
EarlierParts earlier_parts(const Desk& desk);

}  // namespace metro
