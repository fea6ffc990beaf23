"""What the backend takes from macOS: CBLAS, vDSP and vForce of the Accelerate framework, threads by Dispatch.

Every binding is handed ``find``, which gives a symbol's address, or 0 where the library has no such symbol. None of
this has run on a Mac: it is tested on Linux against functions of the documented signatures under the documented names.
"""
