// Tokenizer files hold regular expressions in the Ruby syntax of Oniguruma; we match with PCRE2. The two agree on what
// tokenizers use except for a few constructs, which are rewritten here; what is not known to agree is refused.
//   \s \S   the White_Space characters (PCRE2's own set has U+180E more)
//   \v      U+000B only
//   \p{Han} a script, not script extensions
//   ^ $     at every line (a compile option)
// Refused: options except (?i:...), references, named groups, \w \b \h and the like, nested classes and &&, {,n},
// {n}? and {n,m}+ (Ruby means something else), and in (?i:...) all but ASCII letters that fold to one character.
#pragma once

#include <string>
#include <string_view>

namespace metro::text {

// The same expression for PCRE2 (UTF, UCP, MULTILINE, newline = LF). Throws Error(checkpoint), message beginning with
// `origin`, for what is not supported. `pattern` is valid UTF-8.
std::string to_pcre2_syntax(std::string_view pattern, const std::string& origin);

}  // namespace metro::text
