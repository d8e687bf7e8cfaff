// Which files `requests.input` means: paths, patterns, "-" for standard input. Rank 0 only.
#pragma once

#include <string>
#include <vector>

namespace metro {

// `inputs` with each pattern replaced by the paths that match it, sorted by their bytes; everything else stays in
// place. A pattern is an input with *, ? or [ that is not itself the path of something that exists. Throws Error(input)
// for a pattern that matches nothing or cannot be followed, Error(usage) when "-" is there twice.
std::vector<std::string> find_input_files(const std::vector<std::string>& inputs);

}  // namespace metro
