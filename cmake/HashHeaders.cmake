# At installation: writes what tells the public headers of `headers_folder` from others into `headers_file`.
file(GLOB_RECURSE headers "${headers_folder}/*.h")
set(hashes "")
foreach(header IN LISTS headers)
  file(SHA256 "${header}" hash)
  string(APPEND hashes "${hash}")
endforeach()
string(SHA256 hash "${hashes}")
file(WRITE "${headers_file}" "set(_ddprun_headers ${hash})\n")
