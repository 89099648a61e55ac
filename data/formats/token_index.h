// Megatron-LM's .idx files: where the sequences and documents of a .bin file of tokens lie. No LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

namespace ddp {

/// What an .idx file says.
struct TokenIndex {
  int token_bytes = 2;                   ///< 1, 2, 4 or 8
  bool is_signed = false;                ///< two's complement
  int64_t tokens = 0;                    ///< in the .bin file
  std::vector<int64_t> document_ends{};  ///< in tokens, ascending, the last one `tokens`; empty documents are left out
};

/// Reads the bytes of an .idx file of version 1. Throws DataError, one line that names it, for another kind of file,
/// floats as tokens, a damaged one, and sequences that do not follow each other in the .bin file.
TokenIndex read_token_index(std::string_view bytes, const std::filesystem::path& path);

}  // namespace ddp
