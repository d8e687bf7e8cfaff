#include "engine/desk.hpp"

#include "base/file.hpp"
#include "chat/jinja_renderer.hpp"
#include "requests/input_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>

namespace metro {

namespace {

// What the completions depend on beside the lines of the input.
std::vector<RunKey> run_keys(const Deck& deck, const CheckpointReader& checkpoint, std::int64_t max_context,
                             const std::vector<std::string>& input_files) {
  std::vector<RunKey> keys{{"model.checkpoint", "one of digest " + to_hex(checkpoint.digest())},
                           {"model.max_context", fmt::format("{}", max_context)},
                           {"requests.max_tokens", fmt::format("{}", deck.requests.max_tokens)},
                           {"requests.temperature", fmt::format("{}", deck.requests.temperature)},
                           {"requests.date", fmt::format("\"{}\"", deck.requests.date)},
                           {"requests.shard", text_of(deck.requests.shard)},
                           {"requests.arrivals", fmt::format("\"{}\"", deck.requests.arrivals)},
                           {"requests.input", fmt::format("{} files", input_files.size())}};
  for (std::size_t i = 0; i < input_files.size(); ++i) {
    keys.push_back({fmt::format("file {} of requests.input", i + 1), input_files[i]});
  }
  return keys;
}

// A template is malformed or missing only for who has chat lines: what is wrong shows with the first one.
std::unique_ptr<ChatRenderer> make_renderer(const Deck& deck, const CheckpointReader& checkpoint) {
  constexpr double longest_s = 60.0;
  JinjaSettings settings;
  settings.checkpoint = checkpoint.path();
  settings.date = deck.requests.date;
  settings.patience_s = std::min(longest_s, deck.run.timeout_s / 2);  // the other ranks wait meanwhile
  return std::make_unique<JinjaRenderer>(
      [&checkpoint](const std::string& name) { return checkpoint.source_file(name); }, std::move(settings));
}

void require_room(const Desk& desk, const Deck& deck, bool overwrite) {
  const std::filesystem::path folder = deck.output.directory;
  require_room_for_output(desk.folder->of_part(folder / "metrics.h5"), overwrite);
  require_room_for_output(folder / "deck.toml", overwrite || desk.folder->goes_on());
  if (!desk.trace_path.empty()) {
    require_room_for_output(desk.trace_path, overwrite);
  }
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const CheckpointReader& checkpoint) {
  return Tokenizer::load([&](const std::string& name) { return checkpoint.source_file(name); });
}

Desk open_desk(const Deck& deck, bool overwrite, const CheckpointReader& checkpoint, std::int64_t max_context) {
  Desk desk;
  desk.tokenizer = load_tokenizer(checkpoint);
  RequestDefaults defaults;
  defaults.max_tokens = deck.requests.max_tokens;
  defaults.max_context = max_context;
  defaults.vocab_size = checkpoint.spec().vocab_size;
  defaults.temperature = deck.requests.temperature;
  defaults.model = checkpoint.spec().family;
  const RequestInput input{find_input_files(deck.requests.input), deck.requests.arrivals, deck.requests.arrival_scale,
                           deck.requests.shard.index, deck.requests.shard.count};
  desk.renderer = make_renderer(deck, checkpoint);
  desk.reader = std::make_unique<RequestReader>(input, defaults, desk.tokenizer.get(), desk.renderer.get());
  desk.folder = std::make_unique<RunFolder>(deck.output.directory, overwrite,
                                            run_keys(deck, checkpoint, max_context, input.files));
  desk.trace_path = deck.trace.record.empty() ? std::string() : desk.folder->of_part(deck.trace.record);
  require_room(desk, deck, overwrite);
  // Half of what the other ranks wait at most: they do, meanwhile.
  desk.reader->pass_over(desk.folder->earlier_lines(), deck.run.timeout_s / 2);
  return desk;
}

void open_output(Desk& desk, const Deck& deck, const RunIdentity& identity) {
  RunFolder& folder = *desk.folder;
  const std::filesystem::path directory = deck.output.directory;
  if (!folder.note().empty()) {
    fmt::print(stderr, "metro: warning: {}\n", folder.note());
  }
  folder.begin();
  desk.writer = std::make_unique<CompletionWriter>(deck.output.directory, desk.tokenizer.get(), folder.journal());
  write_file_atomically(directory / "deck.toml", identity.deck);
  desk.metrics = std::make_unique<MetricsWriter>(folder.of_part(directory / "metrics.h5"), identity);
}

EarlierParts earlier_parts(const Desk& desk) {
  const RunFolder& folder = *desk.folder;
  return {folder.part(), folder.num_completions(), folder.num_errors(), folder.num_continued()};
}

}  // namespace metro
