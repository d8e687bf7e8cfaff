// Failures that a double was told to give, for the doubles of CUDA and of NCCL alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

template <class Error>
struct Failure {
  std::string function;
  Error error;
  std::int64_t calls_before;
};

// Of the next call of `function`, else `none`: each failure counts down what waits for its turn, and is given once.
template <class Error>
Error take_failure(std::vector<Failure<Error>>& failures, const std::string& function, Error none) {
  Error result = none;
  for (auto failure = failures.begin(); failure != failures.end();) {
    if (failure->function != function || failure->calls_before-- > 0) {
      ++failure;
      continue;
    }
    result = failure->error;
    failure = failures.erase(failure);
  }
  return result;
}

}  // namespace metro
