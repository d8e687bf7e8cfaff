// Tables of text with a header line and columns between tabs, as index.tsv of the packed forms.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace metro {

// All methods throw Error(input) naming the file, and the line of a value that does not fit.
class IndexTable {
 public:
  explicit IndexTable(const std::string& path);

  std::int64_t num_rows() const { return std::ssize(rows_); }
  const std::string& text(std::int64_t row, std::string_view column) const;
  // An integer of 0 to 2^32 - 1.
  std::int64_t number(std::int64_t row, std::string_view column) const;

  // "PATH, line N": where row `row` stands.
  std::string place(std::int64_t row) const;

 private:
  std::string path_;
  std::vector<std::string> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace metro
