// The packed forms: expert ids as bytes [tokens, layers, top_k], and index.tsv, which says which request has which of
// the tokens.
#pragma once

#include "trace/importers.hpp"

#include <string>

namespace metro {

// gpt-oss-20b, decode: experts.u8 [tokens, 24, 4], index.tsv (request, first_token_pos, n_decode_tokens, token_offset),
// weights.bf16 of the same shape or absent.
ImportedTrace import_gpt_oss(const std::string& folder);

// DeepSeek-V2-Lite, prefill: index.tsv (task, sequence, n_tokens, token_offset within the task), for every task
// TASK.experts.u8 [tokens, 26, 6], or the task is left out; TASK.weights.f32 if all these tasks have it.
ImportedTrace import_deepseek_v2_lite(const std::string& folder);

}  // namespace metro
