#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <limits>
#include <stdexcept>

#include <ddprun/data/byte_source.h>

#include "data/formats/limits.h"
#include "data/formats/mapped_file.h"
#include "data/formats/token_index.h"
#include "ddprun/data/arrays.h"

namespace ddp {
namespace {

static_assert(std::endian::native == std::endian::little, "files of tokens are little-endian");

/// Calls `action` with a value of the C++ type of the tokens.
template <typename Action>
void with_type(int bytes, bool is_signed, const Action& action) {
  switch (bytes) {
    case 1:
      return is_signed ? action(int8_t{}) : action(uint8_t{});
    case 2:
      return is_signed ? action(int16_t{}) : action(uint16_t{});
    case 4:
      return is_signed ? action(int32_t{}) : action(uint32_t{});
    default:
      return action(int64_t{});
  }
}

TokensOptions checked(TokensOptions options) {
  if (options.stride == 0) options.stride = options.length;
  if (options.length < 1 || options.stride < 1 || options.vocabulary < 0) {
    throw std::invalid_argument(
        "Tokens: expected a length and a stride of at least 1 and a vocabulary of at least 0, "
        "got " +
        std::to_string(options.length) + ", " + std::to_string(options.stride) + " and " +
        std::to_string(options.vocabulary));
  }
  return options;
}

}  // namespace

struct Tokens::File {
  File(const std::filesystem::path& path, const TokensOptions& given)
      : options(checked(given)),
        mapped(path.extension() == ".idx" ? std::filesystem::path(path).replace_extension(".bin") : path) {
    if (path.extension() == ".idx") {
      const MappedFile file(path);
      index = read_token_index(file.bytes(), path);
      if (static_cast<uint64_t>(index.tokens) > mapped.size() / static_cast<uint64_t>(index.token_bytes)) {
        throw DataError(mapped.path(), "expected the " + std::to_string(index.tokens) + " tokens of its index, got " +
                                           std::to_string(mapped.size()) + " bytes: it is truncated");
      }
    } else {
      index_flat_file();
    }
    set_windows();
  }

  void index_flat_file() {
    index.token_bytes = options.type == TokenType::kUint16 ? 2 : 4;
    const auto bytes = static_cast<uint64_t>(index.token_bytes);
    if (mapped.size() % bytes != 0) {
      throw DataError(mapped.path(), "expected whole tokens of " + std::to_string(bytes) + " bytes, got " +
                                         std::to_string(mapped.size()) + " bytes: it is truncated or of another type");
    }
    index.tokens = static_cast<int64_t>(mapped.size() / bytes);
    if (options.document_end) {
      const int64_t most = (int64_t{1} << (8 * index.token_bytes)) - 1;
      if (*options.document_end < 0 || *options.document_end > most) {
        throw std::invalid_argument("Tokens: expected a document_end from 0 to " + std::to_string(most) + ", got " +
                                    std::to_string(*options.document_end));
      }
      with_type(index.token_bytes, false, [&](auto type) { find_ends(type); });
    }
    if (index.tokens > 0 && (index.document_ends.empty() || index.document_ends.back() < index.tokens)) {
      index.document_ends.push_back(index.tokens);
    }
  }

  template <typename Token>
  void find_ends(Token) {
    for (int64_t i = 0; i < index.tokens; ++i) {
      if (static_cast<int64_t>(token<Token>(i)) == *options.document_end) index.document_ends.push_back(i + 1);
    }
  }

  void set_windows() {
    // A window needs one token more than its length, because its last token also needs a target.
    const auto windows = [&](int64_t tokens) {
      return tokens <= options.length ? 0 : (tokens - options.length - 1) / options.stride + 1;
    };
    if (options.cross_documents) {
      ends = {windows(index.tokens)};
    } else {
      int64_t begin = 0;
      int64_t count = 0;
      for (const int64_t end : index.document_ends) {
        count += windows(end - begin);
        ends.push_back(count);
        begin = end;
      }
    }
    if (ends.empty() || ends.back() < 1) {
      throw DataError(mapped.path(), "its " + std::to_string(index.tokens) + " tokens" +
                                         (options.cross_documents ? "" : ", document by document,") +
                                         " are too few for a window of " + std::to_string(options.length) +
                                         " and the token after it");
    }
  }

  /// Returns the position at which a window begins.
  int64_t begin_of(int64_t window) const {
    const auto document = static_cast<size_t>(std::ranges::upper_bound(ends, window) - ends.begin());
    if (document == 0) return window * options.stride;
    return index.document_ends[document - 1] + (window - ends[document - 1]) * options.stride;
  }

  template <typename Token>
  Token token(int64_t position) const {
    Token value{};
    std::memcpy(&value, mapped.data() + position * static_cast<int64_t>(sizeof(Token)), sizeof(Token));
    return value;
  }

  template <typename Token>
  void copy(Token, int64_t begin, int64_t* data, int64_t* target) const {
    const uint64_t most = options.vocabulary > 0 ? static_cast<uint64_t>(options.vocabulary)
                                                 : static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    bool are_valid = true;
    for (int64_t i = 0; i <= options.length; ++i) {
      const auto value = static_cast<int64_t>(token<Token>(begin + i));
      are_valid = are_valid && static_cast<uint64_t>(value) < most;
      if (i < options.length) data[i] = value;
      if (i > 0) target[i - 1] = value;
    }
    if (are_valid) return;
    for (int64_t i = begin;; ++i) {
      const auto value = static_cast<int64_t>(token<Token>(i));
      if (static_cast<uint64_t>(value) < most) continue;
      throw DataError(mapped.path(), "token " + std::to_string(i) + " is " + std::to_string(value) +
                                         ", expected 0 to " + std::to_string(most - 1) +
                                         ": the file may have tokens of another type or vocabulary");
    }
  }

  TokensOptions options;
  MappedFile mapped;
  TokenIndex index{};
  std::vector<int64_t>
      ends{};  // cumulative number of windows at the end of each document; a single entry if windows cross documents
};

Tokens::Tokens(const std::filesystem::path& file, const TokensOptions& options)
    : file_(std::make_shared<const File>(file, options)) {}

int64_t Tokens::size() const {
  return file_->ends.back();
}

int64_t Tokens::tokens() const {
  return file_->index.tokens;
}

int64_t Tokens::documents() const {
  return std::ssize(file_->index.document_ends);
}

Batch Tokens::get_batch(std::span<const int64_t> indices) const {
  const auto count = static_cast<int64_t>(indices.size());
  const int64_t length = file_->options.length;
  Batch batch{.data = at::empty({count, length}, at::kLong), .target = at::empty({count, length}, at::kLong)};
  auto* data = batch.data.mutable_data_ptr<int64_t>();
  auto* target = batch.target.mutable_data_ptr<int64_t>();
  for (const int64_t index : indices) {
    if (index < 0 || index >= size()) {
      throw std::out_of_range("Tokens: index " + std::to_string(index) + " is out of range for " +
                              std::to_string(size()) + " samples");
    }
    with_type(file_->index.token_bytes, file_->index.is_signed,
              [&](auto type) { file_->copy(type, file_->begin_of(index), data, target); });
    data += length;
    target += length;
  }
  return batch;
}

}  // namespace ddp
