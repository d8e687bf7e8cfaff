// A compiled regular expression (PCRE2, with its JIT compiler where there is one). Const and shared by threads.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace metro::text {

struct Range {
  std::size_t begin;
  std::size_t end;
};

class Regex {
 public:
  enum class Syntax { oniguruma, pcre2, literal };

  // Throws Error(checkpoint), message beginning with `origin`, if the pattern is malformed or not supported.
  Regex(std::string_view pattern, Syntax syntax, const std::string& origin);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // The matches of a regex in a text, left to right, without overlap. An empty match is given out too, except at the
  // end of the match before it. regex and text must outlive this object.
  class Matches {
   public:
    Matches(const Regex& regex, std::string_view utf8);
    ~Matches();
    Matches(const Matches&) = delete;
    Matches& operator=(const Matches&) = delete;
    // The next match. Throws Error(input) when the search would take too many steps or too much memory.
    std::optional<Range> next();

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace metro::text
