// Readers of the body fields that say how tokens are chosen and where a completion ends. Meaning and ranges are those
// of vLLM (docs/requests.md). Each throws LineError for a value that is not allowed.
#pragma once

#include "requests/request_fields.hpp"

namespace metro::sampling_fields {

void read_temperature(const nlohmann::json& value, RequestDraft& draft);
void read_top_p(const nlohmann::json& value, RequestDraft& draft);
void read_top_k(const nlohmann::json& value, RequestDraft& draft);
void read_min_p(const nlohmann::json& value, RequestDraft& draft);
void read_seed(const nlohmann::json& value, RequestDraft& draft);
void read_n(const nlohmann::json& value, RequestDraft& draft);
void read_best_of(const nlohmann::json& value, RequestDraft& draft);
void read_presence_penalty(const nlohmann::json& value, RequestDraft& draft);
void read_frequency_penalty(const nlohmann::json& value, RequestDraft& draft);
void read_repetition_penalty(const nlohmann::json& value, RequestDraft& draft);
void read_logit_bias(const nlohmann::json& value, RequestDraft& draft);
void read_stop(const nlohmann::json& value, RequestDraft& draft);
void read_stop_token_ids(const nlohmann::json& value, RequestDraft& draft);
void read_include_stop(const nlohmann::json& value, RequestDraft& draft);
void read_min_tokens(const nlohmann::json& value, RequestDraft& draft);

}  // namespace metro::sampling_fields
