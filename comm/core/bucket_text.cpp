#include "comm/core/bucket_text.h"

#include <charconv>
#include <sstream>
#include <stdexcept>

#include "base/utf8.h"

namespace ddp::detail {
namespace {

constexpr const char* kTitle = "gradient buckets";

std::vector<size_t> indices_from(const std::string& line) {
  std::istringstream words(line);
  std::vector<size_t> indices;
  for (std::string word; words >> word;) {
    const char* const end = word.data() + word.size();
    if (std::from_chars(word.data(), end, indices.emplace_back()).ptr != end || word.size() > 18) {
      throw std::invalid_argument("invalid gradient buckets: '" + shown_text(line.substr(0, 80)) +
                                  "' is not a list of parameter numbers");
    }
  }
  if (indices.empty()) throw std::invalid_argument("invalid gradient buckets: a line is empty");
  return indices;
}

}  // namespace

std::string to_text(const BucketIndices& buckets) {
  std::ostringstream text;
  text << kTitle << "\n";
  for (const auto& bucket : buckets) {
    for (size_t i = 0; i < bucket.size(); ++i) text << (i == 0 ? "" : " ") << bucket[i];
    text << "\n";
  }
  return text.str();
}

BucketIndices buckets_from(const std::string& text, size_t parameters) {
  std::istringstream lines(text);
  std::string line;
  if (!std::getline(lines, line) || line != kTitle) {
    throw std::invalid_argument("invalid gradient buckets: it begins with '" + shown_text(line.substr(0, 80)) +
                                "', expected '" + kTitle + "'");
  }
  BucketIndices buckets;
  std::vector<bool> has(parameters, false);
  size_t found = 0;
  while (std::getline(lines, line)) {
    buckets.push_back(indices_from(line));
    for (const size_t index : buckets.back()) {
      if (index >= parameters) {
        throw std::invalid_argument("the gradient buckets name parameter " + std::to_string(index) +
                                    ", but the model has only " + std::to_string(parameters));
      }
      if (has[index]) {
        throw std::invalid_argument("the gradient buckets name parameter " + std::to_string(index) + " twice");
      }
      has[index] = true;
      ++found;
    }
  }
  if (!buckets.empty() && found != parameters) {
    throw std::invalid_argument("the gradient buckets have " + std::to_string(found) +
                                " parameters, but the model has " + std::to_string(parameters));
  }
  return buckets;
}

}  // namespace ddp::detail
