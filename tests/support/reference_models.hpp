// The tiny models in tests/data/families, with what Hugging Face transformers computes for them (README.md there). A
// folder put there is tested; nothing lists them.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace metro::test {

// Names of the folders, ascending.
inline std::vector<std::string> reference_models() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(METRO_TEST_DATA) + "/families")) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace metro::test
