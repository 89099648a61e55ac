// The .idx files of Megatron-LM, which contain the positions of sequences and documents in a .bin file of tokens. Does
// not use LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

namespace ddp {

/// The contents of an .idx file.
struct TokenIndex {
  int token_bytes = 2;                   ///< 1, 2, 4 or 8
  bool is_signed = false;                ///< signed tokens in two's complement
  int64_t tokens = 0;                    ///< the number of tokens in the .bin file
  std::vector<int64_t> document_ends{};  ///< in tokens, ascending, without empty documents; the last is `tokens`
};

/// Parses the bytes of an .idx file of version 1. Throws DataError (one line that names the file) for another kind of
/// file, for tokens that are floats, for damage, and for sequences that are not contiguous in the .bin file.
TokenIndex read_token_index(std::string_view bytes, const std::filesystem::path& path);

}  // namespace ddp
