// Fields of a Hugging Face config.json, read with errors that name the file, the field, its value and what is allowed.
// A field that is null counts as absent, as it does there. The JSON library stays inside the .cpp.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace metro {

class ConfigFields {
 public:
  // Names of one and the same field in the generations of the format; two of them must not contradict each other.
  using Names = std::initializer_list<const char*>;
  struct Bounds {
    std::int64_t least;
    std::int64_t most;
  };

  // `origin` is the file name in messages. Throws Error(checkpoint) unless the text is one JSON object.
  ConfigFields(std::string_view json_text, const std::string& origin);

  bool has(const std::string& name) const;
  void require_field(const std::string& name) const;  // throws Error(checkpoint) if it is absent

  // Required fields; all throw Error(checkpoint) if the field is absent, of another type or out of bounds. Positive
  // numbers are in float32, too, neither 0 nor infinite.
  std::int64_t integer(Names names, Bounds bounds) const;
  double positive_number(const std::string& name) const;
  bool boolean(const std::string& name) const;
  std::string text(const std::string& name) const;
  std::vector<double> positive_numbers(const std::string& name) const;  // a list

  // Optional fields.
  std::int64_t integer_or(Names names, Bounds bounds, std::int64_t otherwise) const;
  bool boolean_or(const std::string& name, bool otherwise) const;
  double positive_number_or(const std::string& name, double otherwise) const;
  // An integer, a list of integers or nothing (an empty list).
  std::vector<std::int64_t> integers(const std::string& name, Bounds bounds) const;
  // A list of strings or nothing (an empty list).
  std::vector<std::string> texts(const std::string& name) const;
  // Fields of the object `name`; messages then speak of "name.field".
  std::optional<ConfigFields> object(const std::string& name) const;

  // Refuses a field that would change the maths: it must be absent or have one of these values, each given as JSON.
  void allow_only(const std::string& name, std::initializer_list<const char*> json_values) const;
  // Refuses any present field that is not one of these.
  void allow_only_fields(Names names) const;

  // Throws Error(checkpoint): "<origin>: <name> = <value> <complaint>".
  [[noreturn]] void refuse(const std::string& name, const std::string& complaint) const;

 private:
  ConfigFields(std::shared_ptr<const nlohmann::json> object, std::string origin, std::string prefix);
  const nlohmann::json* find(const std::string& name) const;
  const nlohmann::json& require(const std::string& name) const;
  std::string find_name(Names names) const;  // empty if all are absent
  std::int64_t checked_integer(const std::string& name, const nlohmann::json& value, Bounds bounds) const;

  std::shared_ptr<const nlohmann::json> object_;
  std::string origin_;
  std::string prefix_;
};

}  // namespace metro
