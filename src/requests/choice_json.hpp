// One completion as an entry of "choices" (docs/requests.md): text, log-probabilities, why it ended.
#pragma once

#include "requests/completed_line.hpp"
#include "tokenizer/tokenizer.hpp"

#include <nlohmann/json_fwd.hpp>

namespace metro {

// `sample` is one of line.samples. tokenizer may be null: texts are then empty, tokens named by their id.
nlohmann::ordered_json choice_json(const Tokenizer* tokenizer, const CompletedLine& line,
                                   const FinishedSequence& sample);

}  // namespace metro
