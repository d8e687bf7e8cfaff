// Unicode normal forms, before anything is split. As in the tokenizers library, whose tables are those of Unicode 9,
// characters that came later stay as they are and where they are: models have been trained on that.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace metro::text {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

// `utf8` in a normal form. `utf8` must be valid UTF-8. Time is O(n log n), also for long runs of combining marks.
std::string normalized(std::string_view utf8, NormalForm form);

// One form after the other; no form leaves the text as it is.
std::string normalized(std::string_view utf8, const std::vector<NormalForm>& forms);

}  // namespace metro::text
